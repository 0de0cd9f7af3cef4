//! Every case between Quicket and each other implementation, in both roles.

use quicket_lab::interop::{self, CASES, Options};
use quicket_lab::peers::{Implementation, Workshop};

#[test]
fn quicket_does_every_case_with_everybody_in_both_roles() {
    let out = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop");
    let options = Options {
        cases: CASES.iter().collect(),
        pairs: interop::pairs_with(Implementation::Quicket, &Implementation::ALL),
        jobs: 6,
        out: out.clone(),
        keep: false,
    };
    let report = interop::run(&options, &Workshop::new().unwrap()).unwrap();
    std::fs::write(out.join("index.html"), report.to_html()).unwrap();
    assert!(report.passed(), "see {}\n{}", out.display(), report.table());
}
