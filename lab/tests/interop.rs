//! Cases between Quicket and each other implementation, in both roles.

use quicket_lab::interop::{self, CASES, Case, Options};
use quicket_lab::peers::{Implementation, Workshop};

/// Where 30 % of the packets are lost, chance can be such that an end hears nothing for its idle
/// timeout. A test may not depend on that; `quicket lab interop` has these cases.
const LEFT_TO_CHANCE: &[&str] = &["handshakeloss", "handshakecorruption"];

fn runs_here(case: &&Case) -> bool {
    !case.on_request && !LEFT_TO_CHANCE.contains(&case.name)
}

#[test]
fn quicket_does_the_cases_with_everybody_in_both_roles() {
    // Where ./test says that the page is.
    let out = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("interop");
    let peers: Vec<_> = Implementation::ALL.into_iter().filter(|peer| !peer.is_costly()).collect();
    let options = Options {
        cases: CASES.iter().filter(runs_here).collect(),
        pairs: interop::pairs_with(Implementation::Quicket, &peers),
        jobs: 6,
        out: out.clone(),
        keep: false,
    };
    let report = interop::run(&options, &Workshop::new().unwrap()).unwrap();
    std::fs::write(out.join("index.html"), report.to_html()).unwrap();
    assert!(report.passed(), "see {}\n{}", out.display(), report.table());
}
