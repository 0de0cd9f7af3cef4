//! nginx (Debian: nginx-light), with all of its files in a folder that its workers may look into.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{Process, until};

/// Writes its file, with these lines in the `http` block.
///
/// # Panics
///
/// If that cannot be written.
#[track_caller]
pub fn configure(dir: &Path, lines: &str) {
    let configuration = format!(
        "daemon off; master_process off; pid nginx.pid; worker_processes 1;
        events {{ }}
        http {{
            access_log off; client_max_body_size 20m;
            client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
            uwsgi_temp_path uwsgi; scgi_temp_path scgi;
            {lines}
        }}"
    );
    fs::write(dir.join("nginx.conf"), configuration).unwrap();
}

/// Starts it with the file `nginx.conf`; what it says is in `nginx.log`.
///
/// # Panics
///
/// If it cannot be started.
#[track_caller]
pub fn start(dir: &Path) -> Process {
    let log = fs::File::create(dir.join("nginx.log")).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-p").arg(dir).args(["-c", "nginx.conf", "-e", "stderr"]);
    let child = command.current_dir(dir).stderr(log).stdout(Stdio::null()).spawn();
    Process(child.unwrap_or_else(|error| panic!("nginx: {error}; apt-get install nginx-light")))
}

/// Starts it with these lines in the `http` block, which have it listen on `port`, and waits until it does.
///
/// # Panics
///
/// If it does not.
#[track_caller]
pub fn serve(dir: &Path, port: u16, lines: &str) -> Process {
    configure(dir, lines);
    let nginx = start(dir);
    until("nginx", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    nginx
}
