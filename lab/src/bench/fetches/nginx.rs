//! nginx instead of the server.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Instant;

use quicket_workload::bench::Failure;

use super::Run;
use crate::bench::driver::START;
use crate::bench::http;
use crate::link::namespace::Namespace;
use crate::netns::{End, VethPair};
use crate::process::Process;

/// Starts it with the file that is fetched, and waits until it answers.
pub(super) fn start(
    run: &Run<'_>,
    pair: &VethPair,
    address: SocketAddr,
) -> Result<Process, Failure> {
    let folder = run.folder.join("nginx");
    let site = folder.join("site");
    std::fs::create_dir_all(&site)?;
    let body: Vec<u8> = (0..run.bytes).map(super::ends::serve::octet).collect();
    std::fs::write(site.join(run.bytes.to_string()), body)?;
    let temporary = http::temporary_paths(&folder);
    let configuration = format!(
        "daemon off; master_process off; pid nginx.pid;
        events {{ worker_connections 4096; }}
        http {{
          access_log off; sendfile on; tcp_nopush on; keepalive_timeout 0; {temporary}
          server {{ listen {address} backlog=1024; root {}; }}
        }}",
        site.display()
    );
    std::fs::write(folder.join("nginx.conf"), configuration)?;
    let (program, _) = http::nginx()?;
    let mut nginx: Command = program.command();
    nginx.arg("-p").arg(&folder).args(["-c", "nginx.conf", "-e", "stderr"]);
    let mut inside = http::orphanless(pair.inside(End::Left, &nginx));
    http::keep_in(&folder, &mut inside);
    let process = Process::start("nginx", &mut inside)?;
    let there = Namespace::open(Some(pair.name(End::Right)))?;
    let until = Instant::now() + START;
    while there.inside(|| TcpStream::connect(address)).is_ok_and(|connected| connected.is_err()) {
        if Instant::now() > until {
            return Err(process.error("does not answer").into());
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Ok(process)
}
