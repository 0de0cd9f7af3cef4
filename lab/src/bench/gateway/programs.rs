//! The gateways, and how each is told what to do.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use quicket_workload::bench::{Failure, SERVER_NAME};
use serde_json::{Value, json};

use super::Gateway;
use crate::bench::Contender;
use crate::bench::driver::Driver;
use crate::bench::http::{orphanless, temporary_paths};

/// Connections to the server that are kept, as many as requests are under way; ours keeps so many by
/// itself.
const KEPT: usize = 64;
/// The most connections of nginx.
const CONNECTIONS: usize = 1 << 16;

/// The command of a gateway at `address` before `server`. It may write into `folder`.
pub(super) fn command(
    driver: &Driver<'_>,
    contender: Contender,
    gateway: Gateway,
    folder: &Path,
    address: SocketAddr,
    server: SocketAddr,
) -> Result<Command, Failure> {
    let certificates = driver.certificates;
    let site = Site {
        folder,
        certificate: &certificates.certificate(),
        key: &certificates.key(),
        address,
        server,
    };
    Ok(match gateway {
        Gateway::Quicket => {
            let file = folder.join("site.toml");
            std::fs::write(&file, site.quicket())?;
            let mut quicket = orphanless(Command::new(driver.contenders.quicket.clone()?));
            quicket.arg("gateway").arg(file);
            quicket
        }
        Gateway::Nginx => {
            std::fs::write(folder.join("nginx.conf"), site.nginx())?;
            let mut nginx = orphanless(driver.contenders.program(contender)?.command());
            nginx.arg("-p").arg(folder).args(["-c", "nginx.conf", "-e", "stderr"]);
            nginx
        }
        Gateway::Caddy => {
            let file = folder.join("caddy.json");
            std::fs::write(&file, site.caddy().to_string())?;
            let mut caddy = orphanless(driver.contenders.program(contender)?.command());
            caddy.args(["run", "--config"]).arg(file);
            caddy
        }
    })
}

/// What all gateways do alike.
struct Site<'a> {
    folder: &'a Path,
    certificate: &'a Path,
    key: &'a Path,
    address: SocketAddr,
    server: SocketAddr,
}

impl Site<'_> {
    fn quicket(&self) -> String {
        let Self { certificate, key, address, server, .. } = self;
        format!(
            "listen = [\"{address}\"]\n\
             [[certificate]]\nchain = {certificate:?}\nkey = {key:?}\n\
             [origin.bench]\nservers = [\"http://{server}\"]\n\
             [[site]]\nnames = [\"{SERVER_NAME}\"]\n\
             [[site.route]]\npath = \"/\"\norigin = \"bench\"\n\
             [limits]\nidle_timeout_ms = 300000\n"
        )
    }

    /// One process, which writes no log and no bodies into files.
    fn nginx(&self) -> String {
        let Self { folder, certificate, key, address, server } = self;
        format!(
            "daemon off; master_process off; pid nginx.pid;
            events {{ worker_connections {CONNECTIONS}; }}
            http {{
              access_log off; {}
              keepalive_timeout 300s; keepalive_requests 1000000000;
              upstream bench {{
                server {server};
                keepalive {KEPT}; keepalive_requests 1000000000;
              }}
              server {{
                listen {address} ssl http2; ssl_protocols TLSv1.3;
                ssl_certificate {}; ssl_certificate_key {};
                location / {{
                  proxy_pass http://bench; proxy_http_version 1.1;
                  proxy_set_header Connection \"\"; proxy_set_header Host $host;
                  proxy_set_header X-Forwarded-For $remote_addr;
                  proxy_max_temp_file_size 0; proxy_buffers 8 64k; proxy_busy_buffers_size 128k;
                }}
              }}
            }}",
            temporary_paths(folder),
            certificate.display(),
            key.display(),
        )
    }

    /// With no access log, and nothing fetched from elsewhere.
    fn caddy(&self) -> Value {
        let Self { certificate, key, address, server, .. } = self;
        let proxy = json!({
            "handler": "reverse_proxy",
            "upstreams": [{ "dial": server.to_string() }],
            "transport": {
                "protocol": "http",
                "compression": false,
                "keep_alive": { "max_idle_conns_per_host": KEPT },
            },
        });
        json!({
            "admin": { "disabled": true, "config": { "persist": false } },
            "logging": { "logs": { "default": { "level": "ERROR" } } },
            "apps": {
                "http": { "servers": { "gateway": {
                    "listen": [address.to_string()],
                    "protocols": ["h1", "h2", "h3"],
                    "automatic_https": { "disable": true },
                    "routes": [{ "handle": [proxy] }],
                    "tls_connection_policies": [{}],
                } } },
                "tls": { "certificates": { "load_files": [
                    { "certificate": certificate, "key": key },
                ] } },
            },
        })
    }
}
