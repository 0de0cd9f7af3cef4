//! The programs: how each is told what to serve, and what to fetch.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;

use quicket_workload::bench::{Failure, SERVER_NAME};
use serde_json::json;

use super::site::Site;
use super::{Contender, Visit};
use crate::peers::Program;
use crate::process::Process;

/// The client over TCP.
const CURL: &str = "curl";
/// How long fetching a file may take, in seconds.
const PATIENCE: &str = "120";
/// Ports are drawn so often until one is free for both protocols.
const DRAWS: usize = 16;

/// nginx, Debian's if that is there, and its version.
pub(in crate::bench) fn nginx() -> Result<(Program, String), Failure> {
    let version = |program: &str| {
        let output = Command::new(program).arg("-v").output()?;
        // As in "nginx version: nginx/1.22.1".
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let version = said.split('/').nth(1).and_then(|rest| rest.split_whitespace().next());
        Ok::<_, io::Error>(version.unwrap_or_default().to_owned())
    };
    for name in ["/usr/sbin/nginx", "nginx"] {
        if let Ok(version) = version(name) {
            let program = Program { executable: name.into(), arguments: Vec::new() };
            return Ok((program, format!("nginx {version}")));
        }
    }
    Err("there is no nginx; install nginx-light of Debian".into())
}

/// Which curl there is.
pub(in crate::bench) fn curl_version() -> Result<String, Failure> {
    let output = Command::new(CURL).arg("--version").output();
    let output = output.map_err(|error| format!("no curl: {error}; install curl of Debian"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(said.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
}

/// A server that runs, and the client that goes with it.
pub(super) struct Pair {
    pub(super) server: Process,
    client: Client,
}

/// A program that fetches files.
struct Client {
    program: PathBuf,
    is_curl: bool,
    address: SocketAddr,
    authority: PathBuf,
    to: PathBuf,
}

impl Pair {
    /// Starts the server.
    pub(super) fn start(visit: &Visit<'_>, site: &Site) -> Result<Self, Failure> {
        let &Visit { contender, contenders, certificates } = visit;
        let address = free_address()?;
        let quicket = contenders.quicket.clone();
        let mut server = match contender {
            Contender::Quicket => serve(visit, quicket.clone()?, site, address),
            Contender::Nginx => {
                let configuration = nginx_configuration(visit, site, address);
                std::fs::write(site.folder().join("nginx.conf"), configuration)?;
                let mut nginx = orphanless(contenders.program(contender)?.command());
                nginx.arg("-p").arg(site.folder());
                nginx.args(["-c", "nginx.conf", "-e", "stderr"]);
                nginx
            }
            Contender::Caddy => {
                let configuration = site.folder().join("caddy.json");
                let text = caddy_configuration(visit, site, address).to_string();
                std::fs::write(&configuration, text)?;
                let mut caddy = orphanless(contenders.program(contender)?.command());
                caddy.args(["run", "--config"]).arg(configuration);
                caddy
            }
            other => return Err(format!("{other} has no program that serves files").into()),
        };
        keep_in(site.folder(), &mut server);
        let is_curl = contender == Contender::Nginx;
        let client = Client {
            program: if is_curl { CURL.into() } else { quicket? },
            is_curl,
            address,
            authority: certificates.authority(),
            to: site.fetched(),
        };
        let server = Process::start(format!("the server of {contender}"), &mut server)?;
        Ok(Self { server, client })
    }

    /// The command that fetches a file.
    pub(super) fn fetch(&self, name: &str) -> Command {
        let Client { program, is_curl, address, authority, to } = &self.client;
        let url = format!("https://{SERVER_NAME}:{}/{name}", address.port());
        let mut command = Command::new(program);
        if *is_curl {
            let address = format!("{SERVER_NAME}:{}:{}", address.port(), address.ip());
            command.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--resolve"]);
            command.arg(address).arg("--cacert").arg(authority);
        } else {
            command.args(["get", "--quiet", "--http3-only", "--no-sessions", "--connect"]);
            command.arg(address.to_string()).arg("--ca").arg(authority);
        }
        command.args(["--max-time", PATIENCE, "-o"]).arg(to.join(name)).arg(url);
        command
    }
}

/// Has a server keep what it keeps in a folder: it is of no use to the next.
pub(in crate::bench) fn keep_in(folder: &Path, server: &mut Command) {
    for variable in ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"] {
        server.env(variable, folder);
    }
}

/// Has a server killed when this process ends, however that happens: unlike processes of the
/// benchmark, it does not notice by itself.
pub(in crate::bench) fn orphanless(command: Command) -> Command {
    let mut guarded = Command::new("setpriv");
    guarded.args(["--pdeathsig", "KILL"]).arg(command.get_program()).args(command.get_args());
    guarded
}

fn serve(visit: &Visit<'_>, quicket: PathBuf, site: &Site, address: SocketAddr) -> Command {
    let mut serve = orphanless(Command::new(quicket));
    serve.arg("serve").arg(site.served()).arg("--quiet");
    serve.args(["--listen", &address.to_string(), "--cert"]).arg(visit.certificates.certificate());
    serve.arg("--key").arg(visit.certificates.key());
    serve
}

/// One process, which sends files by `sendfile` and writes no log.
fn nginx_configuration(visit: &Visit<'_>, site: &Site, address: SocketAddr) -> String {
    let served = site.served();
    let (certificate, key) = (visit.certificates.certificate(), visit.certificates.key());
    let temporary = temporary_paths(site.folder());
    format!(
        "daemon off; master_process off; pid nginx.pid;
        events {{ }}
        http {{
          access_log off; sendfile on; {temporary}
          server {{
            listen {address} ssl; ssl_protocols TLSv1.3;
            ssl_certificate {}; ssl_certificate_key {};
            root {};
          }}
        }}",
        certificate.display(),
        key.display(),
        served.display(),
    )
}

/// Where nginx may write what it does not keep: its own places need not be there.
pub(in crate::bench) fn temporary_paths(folder: &Path) -> String {
    let folder = folder.display();
    ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {folder}/temporary;"))
        .concat()
}

/// Files over HTTP/3, with no access log and nothing fetched from elsewhere.
fn caddy_configuration(visit: &Visit<'_>, site: &Site, address: SocketAddr) -> serde_json::Value {
    let (certificate, key) = (visit.certificates.certificate(), visit.certificates.key());
    json!({
        "admin": { "disabled": true, "config": { "persist": false } },
        "logging": { "logs": { "default": { "level": "ERROR" } } },
        "apps": {
            "http": { "servers": { "files": {
                "listen": [address.to_string()],
                "protocols": ["h1", "h2", "h3"],
                "automatic_https": { "disable": true },
                "routes": [{ "handle": [{ "handler": "file_server", "root": site.served() }] }],
                "tls_connection_policies": [{}],
            } } },
            "tls": { "certificates": { "load_files": [
                { "certificate": certificate, "key": key },
            ] } },
        },
    })
}

/// An address that nobody has, neither for UDP nor for TCP.
fn free_address() -> Result<SocketAddr, Failure> {
    for _ in 0..DRAWS {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = udp.local_addr()?;
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err("no port is free for both UDP and TCP".into())
}
