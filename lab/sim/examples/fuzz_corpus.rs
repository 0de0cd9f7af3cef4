//! Writes the seeds of the fuzzers' corpora: `cargo run -p quicket-sim --example fuzz_corpus -- fuzz/corpus`.

use std::fs;
use std::path::PathBuf;

use quicket_sim::fuzz::Target;

fn main() -> std::io::Result<()> {
    let folder: PathBuf = std::env::args_os().nth(1).unwrap_or_else(|| "fuzz/corpus".into()).into();
    for target in Target::ALL {
        let folder = folder.join(target.name());
        fs::create_dir_all(&folder)?;
        for seed in 0..12 {
            fs::write(folder.join(format!("seed-{seed:02}")), target.generate(seed))?;
        }
    }
    Ok(())
}
