//! Cases between Quicket and each other implementation, in both roles.

use quicket_lab::interop::{self, CASES, Options, Outcome, THIS_MACHINE};
use quicket_lab::netns;
use quicket_lab::peers::{Implementation, Workshop};

/// Where 30 % of the packets are lost, chance can be such that an end hears nothing for its idle
/// timeout: once in hundreds of runs. Three such runs are no chance.
const AGAIN: u64 = 2;

#[test]
fn quicket_does_the_cases_with_everybody_in_both_roles() {
    // Where ./test says that the page is.
    let out = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("interop");
    let peers: Vec<_> = Implementation::ALL.into_iter().filter(|peer| !peer.is_costly()).collect();
    let options = Options {
        cases: CASES.iter().filter(|case| !case.on_request).collect(),
        pairs: interop::pairs_with(Implementation::Quicket, &peers),
        again: AGAIN,
        jobs: 8,
        out: out.clone(),
        keep: false,
    };
    let report = interop::run(&options, &Workshop::new().unwrap()).unwrap();
    std::fs::write(out.join("index.html"), report.to_html()).unwrap();
    assert!(report.passed(), "see {}\n{}", out.display(), report.table());
    for run in &report.runs {
        if let Outcome::Unsupported { reason } = &run.outcome
            && reason.starts_with(THIS_MACHINE)
        {
            netns::leave_out(&format!("{} with {}: {reason}", run.case, run.server));
        }
    }
}
