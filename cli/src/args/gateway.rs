//! Flags of `quicket gateway`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use quicket::Workers;

/// Put HTTP/3, HTTP/2 and HTTP/1.1 in front of what a site already runs
///
/// Requests come by QUIC and by TLS over TCP, at the same port number, and go to servers of HTTP/1.1 and
/// HTTP/2 (TCP, TLS or Unix sockets): which, a file says, or quicket gateway try for a single one. Requests that
/// servers could read in two ways are refused.
///
/// The signal SIGHUP has the file and all certificates read again: requests under way go on as they began.
/// If anything is wrong, all stays as it is, and the reason is told. SIGUSR1 has the access log opened anew, after it
/// was moved aside.
///
/// With --switch, quicket switch upgrade starts the next generation: a newer program, or a file that takes a new
/// process. It gets the TCP sockets, takes all new connections once it is ready, and this one ends with its own. If it
/// does not come up, all stays as it is. Sockets that a service manager hands over are used where the file
/// has their addresses; units of systemd are in docs/systemd.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true,
          after_help = EXAMPLES, after_long_help = FILE)]
pub(crate) struct Gateway {
    #[command(subcommand)]
    pub(crate) command: Option<GatewayCommand>,

    /// The file that says what to do
    #[arg(required = true)]
    pub(crate) file: Option<PathBuf>,

    /// Check the file and all that it names, and end: with exit code 2 if anything is wrong
    #[arg(long)]
    pub(crate) check: bool,

    /// How many workers receive QUIC, from 1 to 256; auto stands for as many as the gateway may use
    /// cores
    #[arg(long, default_value = "auto", value_name = "N", value_parser = super::serve::workers)]
    pub(crate) workers: Workers,

    #[command(flatten)]
    pub(crate) sharing: super::Sharing,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    /// Put a gateway with a self-signed certificate in front of one server
    #[command(after_help = "\
Examples:
  quicket gateway try http://127.0.0.1:8080
  quicket gateway try unix:/run/app.sock -l '[::]:8443'")]
    Try(Try),
    #[command(after_help = "\
Examples:
  quicket gateway capture /etc/quicket/site.toml --client 192.0.2.7 --for 30s -o client.pcapng
  quicket gateway capture /etc/quicket/site.toml --client 192.0.2.0/24 --client 2001:db8::/32 --qlog qlogs
  quicket gateway capture /etc/quicket/site.toml --client 0.0.0.0/0 --one-in 1000 --headers-only -o some.pcapng
  quicket gateway capture /etc/quicket/site.toml --client 192.0.2.7 -o - | wireshark -k -i -")]
    Capture(Box<super::Capture>),
}

#[derive(Args, Debug)]
pub(crate) struct Try {
    /// The server: http://HOST[:PORT], https://HOST[:PORT], h2c://HOST[:PORT], h3://HOST[:PORT] or unix:/PATH
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,

    /// Where to listen, over UDP and TCP; port 0 stands for any free port
    #[arg(long, short, value_name = "ADDR", default_value = "127.0.0.1:8443")]
    pub(crate) listen: SocketAddr,
}

const EXAMPLES: &str = "\
Examples:
  quicket gateway try http://127.0.0.1:8080
  quicket gateway --check /etc/quicket/site.toml
  quicket gateway /etc/quicket/site.toml
  quicket gateway /etc/quicket/site.toml --switch";

const FILE: &str = "\
The file, in TOML; what is not said is as shown here, and paths are relative to the file:
  listen = [\"[::]:443\"]            HTTP/3 over UDP; HTTP/2 and 1.1 over TCP
  watch = false                    read this file and those that it names again when they change
  redirect = []                    plain HTTP, which leads to the first of listen
  resolver = []                    name servers for origins, protocols and [[pass]], such as
                                   [\"127.0.0.1:53\"]; the system's
  access_log = \"FILE\"              a line of JSON for each request; - is standard error
  secrets = \"FILE\"                 of a site (quicket switch secrets new): tickets of one gateway are taken by all
  proxy_protocol = []              networks of balancers in front, such as \"10.0.0.0/8\", that begin each
                                   connection over TCP with a header of PROXY protocol v2
  [[certificate]]                  or [acme] below; the first is for clients that ask for another name; a
                                   name may have one with a key of each type
  chain = \"FILE\"
  key = \"FILE\"                     or { keyd = \"unix:/PATH\" }: in a key process (quicket keyd --help), with
                                   timeout_ms = 1000, threads = 16, queue = 1024; over TCP
                                   { keyd = \"tcp:HOST:PORT\", client_chain = \"FILE\",
                                   client_key = \"FILE\", ca = \"FILE\" }
  [acme]                           certificates that the gateway gets and renews by itself (RFC 8555)
  directory = \"https://acme-v02.api.letsencrypt.org/directory\"    the authority's
  agree_to_terms = true            due: the authority's terms of service are agreed to
  names = [\"NAME\", [\"NAME\", \"NAME\"]]      each entry is a certificate, for one name or several
  state = \"DIRECTORY\"              due: where the account and certificates are kept; made with mode 700
  contact = []                     addresses of mail, for the authority
  challenge = \"tls-alpn-01\"        at port 443; or http-01, at port 80, which redirect listens on. Without a
                                   site it is http-01
  key_type = \"ecdsa-p256\"          or ecdsa-p384, rsa-2048, rsa-4096
  profile = \"NAME\"                 a kind of certificate that the authority has; its default
  ca = \"FILE\"                      whom the directory's server is trusted by; the system's roots
  external_account = { key_id = \"ID\", key_file = \"FILE\" }         if the authority gives accounts
                                   beforehand; the file has the key in base64url
  [origin.NAME]
  servers = [\"http://HOST:PORT\", \"unix:/PATH\"]         HTTP/1.1; h2c://HOST:PORT and h2c+unix:/PATH
                                   for HTTP/2; https://HOST:PORT for both over TLS;
                                   h3://HOST:PORT for HTTP/3;
                                   { url = \"http://HOST:PORT\", weight = 1 } from 0 to 1000
  ca = \"FILE\"                      whom those over TLS and HTTP/3 are trusted by; the system's roots
  server_name = \"NAME\"             in their certificates; the host
  client_chain = \"FILE\"            the gateway's own certificate for them, and ...
  client_key = \"FILE\"              ... its key; none
  balance = \"round-robin\"          or least-requests, client-address, consistent-hash
  hash_by = \"client-address\"       for consistent-hash; or \"path\", { header = \"NAME\" },
                                   { cookie = \"NAME\" }
  retries = 1                      on other servers, of requests that are safe to repeat
  connect_timeout_ms = 5000        and as long for a server to take one more request
  max_connections = 4096           to each server over HTTP/1.1 and HTTP/2, WebSockets included; then
                                   requests wait
  resolve_ms = N                   the longest that the addresses of a name count; as DNS says, up to an hour,
                                   and 30000 where it says nothing
  answer_timeout_ms = 60000        until an answer begins, once the request is there
  idle_timeout_ms = 60000          in the middle of an answer
  max_failures = 3                 in a row, after which a server is left out ...
  pause_ms = 10000                 ... for so long
  fail_on = []                     statuses from 500 to 599 that are failures, too
  upgrade = [\"websocket\"]          what connections may become, if the server agrees; not h2c
  upgrade_idle_timeout_ms = 300000 silence of both ends, after which that ends
  [origin.NAME.health_check]       servers are asked now and then, whether requests come or not
  path = \"/\"                       by GET
  host = \"localhost\"
  interval_ms = 5000
  timeout_ms = 2000
  expect = [200]                   statuses of a server that is well
  healthy_after = 2                good answers in a row
  unhealthy_after = 3              bad ones in a row
  [[site]]
  names = [\"example.org\", \"*.example.org\"]     \"*\": all that others have not
  hsts = { max_age_s = N }         and include_subdomains = false, preload = false
  error_page = { 404 = \"FILE\" }    instead of the gateway's own words; origins' answers stay
  compress = false                 answers of text and the like, by gzip, br or zstd
  bytes_per_s = N                  of bodies, of all requests together, each way, from 16384; no limit
  requests = N                     under way, of all clients together; no limit
  requests_per_s = N               of all clients together; no limit
  connections = N                  whose handshake asks for one of the names; no limit
  handshakes_per_s = N             of those; no limit
  client_certificates = { ca = [\"FILE\"] }         clients show one of these authorities (PEM); and
                                   crl = [], lists of revoked ones, PEM or DER; required = true;
                                   headers = { certificate = \"client-cert\" }, and chain, fingerprint
  [[site.route]]                   the longest path counts
  path = \"/\"                       whole segments: /a is /a and /a/b, and not /ab
  methods = []                     all
  headers = { NAME = \"VALUE\" }     must be there; \"*\" is any value
  origin = \"NAME\"                  one of these four
  files = \"DIRECTORY\"              with FILE.br, .zst and .gz for who takes them
  redirect = { to = \"https://{host}{path}\", status = 308 }     or {rest}: what follows path
  respond = { status = 200, body = \"\",
                                   content_type = \"text/plain; charset=utf-8\" }
  rewrite_prefix = \"/PREFIX\"       instead of path, for the origin or the directory
  request_headers = { set = {}, add = {}, remove = [] }          for the origin
  response_headers = { set = {}, add = {}, remove = [] }         for the client
  compress = BOOL                  as the site
  early_data = \"safe\"              0-RTT: GET, HEAD and OPTIONS go on, with Early-Data: 1; or wait
  [[protocol]]                     connections with another ALPN; quicket connect is for clients
  alpn = [\"NAME\"]
  names = [\"*\"]                    server names: \"example.org\", \"*.example.org\", \"*\": all others
  streams = \"tcp://HOST:PORT\"      or unix:/PATH, or quic://HOST:PORT for all of a connection
  datagrams = \"udp://HOST:PORT\"    or the same quic://HOST:PORT
  ca = \"FILE\"                      for quic://; the system's certificates
  proxy_protocol = false           PROXY protocol, version 2, before each stream, and each datagram over UDP
  early_data = false               0-RTT data waits for the handshake
  client_certificates = { ca = [\"FILE\"] }         and crl, required, as for a site
  connect_timeout_ms = 5000
  idle_timeout_ms = 300000         silence of a stream, or of a client's datagrams
  max_streams = 100                of a client, of each kind; as many as requests
  max_connections = 4096           to the origin; a client's datagrams over UDP are one
  connections = N                  of clients, of all together; no limit
  handshakes_per_s = N             of clients, of all together; no limit
  bytes_per_s = N                  of all clients together, each way, from 16384; no limit
  buffer_bytes = 65536             read from the origin at once, from 1024 to 16777216
  [[pass]]                         connections that are passed on without being ended here
  names = [\"NAME\"]                 as of [[protocol]]; the nearest name counts
  quic = \"udp://HOST:PORT\"         where those over QUIC go, unless they are the gateway's, and ...
  tls = \"tcp://HOST:PORT\"          ... those over TCP with TLS; or unix:/PATH
  proxy_protocol = false           PROXY protocol, version 2, before each connection of tls
  connection_ids = \"FILE\"          how the origin of quic writes its connection IDs, so that clients may move
  server_id = \"HEX\"                what names it in them
  connect_timeout_ms = 5000        of tls
  idle_timeout_ms = 300000         silence in both directions
  disable_1rtt_encryption = []     networks of clients, at the file's top: DANGEROUS, their connections over QUIC
                                   have no encryption if they ask for that
  [[congestion]]                   over QUIC; the first that fits a connection counts
  algorithm = \"cubic\"              or newreno, bbr
  names = []                       server names of the handshake: \"example.org\", \"*.example.org\"; any
  alpn = []                        \"h3\", or a private protocol; any
  networks = []                    of clients, such as \"10.0.0.0/8\"; any
  rtt_from_ms = 0                  round trip times, as the handshake has measured them, ...
  rtt_below_ms = N                 ... and less than this; any
  initial_window = 10              datagrams before any acknowledgment, from 2 to 100
  cubic_beta = 0.7                 of the window, after a loss; from 0.5 to 0.9
  cubic_fast_convergence = true    give way to new flows after a loss
  [balancer]                       in front, which routes UDP by connection IDs (quicket balance --help)
  connection_ids = \"FILE\"          how they are written: the balancer's file, too
  server_id = \"HEX\"                what names this gateway in them
  report_to = []                   balancers (\"IP:PORT\") that hear that it is there, or stops; needs the
                                   file's report-key
  max_udp_payload = N              that clients may send, in bytes, from 1200: 1440 of 1500 over IPv4;
                                   no limit unless given
  [early_data]                     each ticket brings 0-RTT in once at all gateways (docs/site.md); needs secrets
  register = \"redis://HOST:PORT\"   a store that speaks the Redis protocol; rediss:// over TLS; or \"unix:/PATH\"
  name = \"NAME\"                    where gateways reach it by several addresses; register
  username = \"NAME\"                and ...
  password_file = \"FILE\"           ... for AUTH; none
  ca = \"FILE\"                      whom it is trusted by over TLS; the system's roots
  client_chain = \"FILE\"            the gateway's own certificate over TLS, and ...
  client_key = \"FILE\"              ... its key; none
  deadline_ms = 5                  for an answer, from 1 to 200; without one there is no 0-RTT, and no error
  replicas = 0                     of the store that must keep up: all there are, where one may become the master
  [metrics]                        counters, at /metrics (Prometheus) and /metrics.json
  listen = \"127.0.0.1:9090\"        or \"unix:/PATH\", a socket for the gateway's own user
  token_file = \"FILE\"              of 16 bytes at least, for Authorization: Bearer; due with TCP
  [traces]                         spans of requests for OpenTelemetry; off without the table
  endpoint = \"URL\"                 of the receiver, such as \"http://127.0.0.1:4318/v1/traces\" (OTLP, protobuf); or https
  ca = \"FILE\"                      whom it is trusted by over TLS; the system's roots
  sample = 0.01                    of all requests, from 0 to 1
  trust = []                       networks of clients whose traceparent counts, such as \"10.0.0.0/8\"
  service = \"quicket-gateway\"      what the gateway is called (service.name)
  addresses = false                spans tell clients' addresses
  paths = false                    spans tell paths, without queries
  [capture]                        of clients, by quicket gateway capture; there are none without
  allow = true
  secrets = true                   with what decrypts connections
  max_s = 300
  max_mib = 256
  [limits]
  connections = 20000
  requests = 100                   under way on a connection
  header_bytes = 32768
  header_timeout_ms = 10000
  body_timeout_ms = 60000          silence of a client
  idle_timeout_ms = 180000         of a connection of HTTP/2 or HTTP/3 without a request, which is then told to go
  drain_ms = 10000                 for requests under way, in the end
  handover_ms = 3600000            for private protocols and WebSocket, once the next generation has taken over
  handshakes_without_retry = 512   unfinished over QUIC; above, clients must prove their address
  client_connections = N           of one address, or IPv6 network of /64; no limit unless given
  client_requests = N              under way
  client_requests_per_s = N
  client_handshakes_per_s = N
  client_bytes_per_s = N           of bodies, WebSocket and private protocols, each way, from 16384
  memory_mib = 512                 for the data of streams, of all connections over QUIC

Examples:
  quicket gateway try http://127.0.0.1:8080
  quicket gateway --check /etc/quicket/site.toml
  quicket gateway /etc/quicket/site.toml
  quicket gateway /etc/quicket/site.toml --switch";
