//! gRPC through the gateway: server and client are those of grpcio.

mod behind;

use std::path::Path;

use behind::{Site, folder, python};
use quicket_testing::Process;

#[test]
fn calls_of_every_kind_cross() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let (_server, port) = Process::start(python().arg(directory.join("grpc_server.py")));
    let rest = format!(
        "[origin.app]\nservers = [\"h2c://127.0.0.1:{port}\"]\n[[site]]\nnames = [\"*\"]\n\
         [[site.route]]\norigin = \"app\"\n"
    );
    let site = Site::start(folder(), &rest);
    let mut client = python();
    client.arg(directory.join("grpc_client.py")).arg(site.address.port().to_string());
    let output = client.arg(site.path("cert.pem")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let wanted = "unary: 1000000, trailer: yes\nserver streaming: 5\nclient streaming: 5\n\
                  both: in turns\nerror: NOT_FOUND nothing there\ndeadline: DEADLINE_EXCEEDED\n";
    assert_eq!(said, wanted, "{errors}");
}
