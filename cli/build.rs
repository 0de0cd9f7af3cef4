//! Takes the library for `quicket run` into the program where the environment names one: see
//! `install`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-env-changed=QUICKET_EMBED");
    println!("cargo::rustc-check-cfg=cfg(embedded_preload)");
    if let Some(file) = env::var_os("QUICKET_EMBED").filter(|file| !file.is_empty()) {
        println!("cargo::rerun-if-changed={}", file.display());
        println!("cargo::rustc-cfg=embedded_preload");
        println!("cargo::rustc-env=QUICKET_EMBED={}", file.display());
        // Programs of several builds share a cache.
        let content = fs::read(&file)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        println!(
            "cargo::rustc-env=QUICKET_EMBED_NAME=libquicket_preload-{:016x}.so",
            hasher.finish()
        );
    }
}
