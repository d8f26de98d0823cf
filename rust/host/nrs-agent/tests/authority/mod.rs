// SPDX-License-Identifier: GPL-2.0-only

//! Certificates for tests.

use std::{fs, net::SocketAddr, path::Path, process::Command};

/// Algorithm of keys.
const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc";

/// Runs openssl(1) in `room`.
fn openssl(room: &Path, args: &str) {
    let run = Command::new("openssl")
        .args(args.split(' '))
        .current_dir(room)
        .output();
    let output = run.expect("openssl runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args}: {said}");
}

/// Creates the authority `ca`, and certificates of `servers`, each with the addresses of all
/// servers, in `room`.
pub fn certify(room: &Path, servers: &[(&str, SocketAddr)]) {
    openssl(
        room,
        &format!("req -x509 {KEY} -days 2 -keyout ca.key -out ca.pem -subj /CN=realm"),
    );
    let names = servers.iter().map(|(_, at)| format!("IP:{}", at.ip()));
    let names = names.collect::<Vec<_>>().join(",");
    for (name, _) in servers {
        sign(room, name, &names, "-days 2");
    }
}

/// Creates a certificate of the server `name`, with the alternative names `names`, valid for the
/// time `when`, signed by the authority in `room`.
pub fn sign(room: &Path, name: &str, names: &str, when: &str) {
    let ext = format!("basicConstraints=CA:FALSE\nsubjectAltName={names}\n");
    fs::write(room.join("ext"), ext).unwrap();
    openssl(
        room,
        &format!("req -new {KEY} -keyout {name}.key -out {name}.csr -subj /CN={name}"),
    );
    openssl(
        room,
        &format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key {when} -extfile ext -out {name}.pem"
        ),
    );
}
