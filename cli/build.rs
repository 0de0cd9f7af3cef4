//! Says where the library for `quicket run` is, which the program takes into itself.
//!
//! `quicket-preload` is among the program's dependencies. Cargo makes a shared library of it, beside what
//! else is made for the program, and has it ready before the program is compiled; but not before this
//! script runs, and not at all where code is only checked. There an empty file stands for it.

use std::env;
use std::fs::OpenOptions;
use std::path::PathBuf;

const LIBRARY: &str = "libquicket_preload.so";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(embedded_preload)");
    let variable = |name| env::var_os(name).map(PathBuf::from).unwrap_or_default();
    let is_linux = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    // Only what is built where it lies has a name without a hash.
    let is_here = variable("CARGO_MANIFEST_DIR").join("../preload/Cargo.toml").is_file()
        && !variable("CARGO_MANIFEST_DIR").components().any(|part| part.as_os_str() == "checkouts");
    // <target>/<profile>/build/<package>/out
    let out = variable("OUT_DIR");
    let Some(dir) = out.ancestors().nth(3).filter(|_| is_linux && is_here) else { return };
    let library = dir.join("deps").join(LIBRARY);
    // Never in the place of one that is there.
    let _ = OpenOptions::new().write(true).create_new(true).open(&library);
    if library.is_file() {
        println!("cargo::rustc-cfg=embedded_preload");
        println!("cargo::rustc-env=QUICKET_PRELOAD={}", library.display());
    }
}
