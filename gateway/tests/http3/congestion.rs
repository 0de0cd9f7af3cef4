//! Congestion control as the file says, of connections that come after it was read.

use super::behind::{Site, folder, until};
use super::client::{connect, run};

const SITE: &str = "[[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = {}\n";

#[test]
fn the_controller_is_that_of_the_name_the_network_and_the_round_trip() {
    let dir = folder();
    let metrics =
        format!("[metrics]\nlisten = \"unix:{}\"\n", dir.path().join("counters.sock").display());
    let file = |congestion: &str| format!("{SITE}{metrics}{congestion}");
    let site = Site::start(dir, &file(""));
    let counted = |controller: &str| -> u32 {
        let output = site.curl(&["--unix-socket", "counters.sock", "http://localhost/metrics"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let name = format!("congestion_control_total{{algorithm=\"{controller}\"}} ");
        let value = text.lines().find_map(|line| line.split_once(&name)?.1.parse().ok());
        value.unwrap_or(0)
    };
    let all = || -> [u32; 3] { ["NewReno", "CUBIC", "BBRv3"].map(&counted) };
    let elsewhere = "[[congestion]]\nalgorithm = \"bbr\"\nnames = [\"other.example\"]\n\
                     [[congestion]]\nalgorithm = \"bbr\"\nnetworks = [\"192.0.2.0/24\"]\n\
                     [[congestion]]\nalgorithm = \"bbr\"\nrtt_from_ms = 60000\n";
    let mut expected = [0, 0, 0];
    let mut first = None;
    for (congestion, at) in [
        ("", 1),
        ("[[congestion]]\nalgorithm = \"bbr\"\nnames = [\"localhost\"]\nalpn = [\"h3\"]\n", 2),
        ("[[congestion]]\nalgorithm = \"newreno\"\nnetworks = [\"127.0.0.0/8\"]\n", 0),
        ("[[congestion]]\nalgorithm = \"newreno\"\nrtt_below_ms = 60000\n", 0),
        (elsewhere, 1),
    ] {
        site.reload(&file(congestion));
        let connection = run(connect(&site));
        expected[at] += 1;
        until(congestion, || all() == expected);
        // What is there stays as it is.
        first.get_or_insert(connection);
    }
    let wrong = |congestion: &str| {
        let text = format!("listen = [\"127.0.0.1:0\"]\n{}", file(congestion));
        let problems = quicket_gateway::config::parse(&text, site.dir.path()).unwrap_err();
        problems.iter().map(|problem| format!("{problem}\n")).collect::<String>()
    };
    for (congestion, what) in [
        ("algorithm = \"vegas\"", "unknown variant `vegas`"),
        ("algorithm = \"bbr\"\nnames = [\"a b\"]", "congestion 1.names: \"a b\" is no DNS name"),
        (
            "algorithm = \"bbr\"\nalpn = [\"h2\"]",
            "congestion 1.alpn: \"h2\" is not served over QUIC",
        ),
        ("algorithm = \"bbr\"\nrtt_from_ms = 5\nrtt_below_ms = 5", "congestion 1.rtt_below_ms: "),
        (
            "algorithm = \"bbr\"\n[[congestion]]\nalgorithm = \"cubic\"",
            "congestion 2: is never taken",
        ),
    ] {
        let told = wrong(&format!("[[congestion]]\n{congestion}\n"));
        assert!(told.contains(what), "{what} is not in {told}");
    }
}
