//! nginx instead of the server.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
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
    let configuration = configuration(&folder, address, workers());
    std::fs::write(folder.join("nginx.conf"), configuration)?;
    let (program, _) = http::nginx()?;
    let program = program.command();
    // Workers outlive a master that is killed, unless they are in a PID namespace of which it is the first process.
    let mut nginx = Command::new("unshare");
    nginx.args(["--pid", "--kill-child=KILL"]).arg(program.get_program()).args(program.get_args());
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

/// One for each core that the server may use.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A master and its workers, who read the site, which nobody but root may: as it is only root who makes namespaces, they are root's.
fn configuration(folder: &Path, address: SocketAddr, workers: usize) -> String {
    let temporary = http::temporary_paths(folder);
    format!(
        "daemon off; user root; worker_processes {workers}; pid nginx.pid;
        events {{ worker_connections 4096; }}
        http {{
          access_log off; sendfile on; tcp_nopush on; keepalive_timeout 0; {temporary}
          server {{ listen {address} backlog=1024; root {}/site; }}
        }}",
        folder.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nginx_has_as_many_workers_as_cores() {
        let address = ([127, 0, 0, 1], 8000).into();
        let configuration = configuration(Path::new("/folder"), address, 2);
        assert!(configuration.contains("worker_processes 2;"), "{configuration}");
        assert!(!configuration.contains("master_process off"), "{configuration}");
        assert!(configuration.contains("root /folder/site;"), "{configuration}");
        assert!(workers() >= 1);
    }
}
