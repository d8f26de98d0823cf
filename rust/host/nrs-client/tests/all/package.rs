// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks of the crate's package, which programs under any license may link.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// License of each file.
const LICENSE: &str = "MIT OR Apache-2.0";

/// Runs cargo for this crate, without the network; returns its output.
fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env::var_os("CARGO").expect("the path of cargo"))
        .args(arguments)
        .args(["--offline", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        // Clippy may be the compiler of this test.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .stdin(Stdio::null())
        .output()
        .expect("cargo starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Adds all files below `dir`.
fn add_files(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            add_files(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// Builds the package without the rest of the checkout, so that only its files are linked, and
/// checks the license line of each source file.
#[test]
fn builds_alone_and_states_its_license() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packaged");
    let target = target.to_str().expect("UTF-8");
    cargo(&["package", "--allow-dirty", "--target-dir", target]);
    let name = concat!("nrs-client-", env!("CARGO_PKG_VERSION"));
    let dir = Path::new(target).join("package").join(name);
    let mut files = Vec::new();
    add_files(&dir, &mut files);
    let sources = || {
        files
            .iter()
            .filter(|path| path.extension().is_some_and(|e| e == "rs"))
    };
    for source in sources() {
        let text = fs::read_to_string(source).expect("UTF-8");
        let first = format!("// SPDX-License-Identifier: {LICENSE}");
        assert_eq!(text.lines().next(), Some(&*first), "{}", source.display());
    }
    // The files shared with the module are in the package.
    for shared in [
        "src/wire.rs",
        "src/wire/made.rs",
        "src/timeouts/estimator.rs",
    ] {
        assert!(sources().any(|path| *path == dir.join(shared)), "{shared}");
    }
    for text in ["LICENSE-MIT", "LICENSE-APACHE"] {
        assert!(dir.join(text).is_file(), "{text}");
    }
    assert_eq!(env!("CARGO_PKG_LICENSE"), LICENSE);
}

/// Checks that libc is the only dependency.
#[test]
fn depends_on_libc_only() {
    let tree = [
        "tree",
        "--edges",
        "normal,build",
        "--prefix",
        "none",
        "--format",
        "{p}: {l}",
    ];
    let tree = cargo(&tree);
    let mut lines = tree.lines();
    assert!(
        lines
            .next()
            .is_some_and(|line| line.starts_with("nrs-client v")),
        "{tree}"
    );
    let libc = lines.next().unwrap_or_default();
    assert!(
        libc.starts_with("libc v") && libc.ends_with(": MIT OR Apache-2.0"),
        "{tree}"
    );
    assert_eq!(lines.next(), None, "{tree}");
}
