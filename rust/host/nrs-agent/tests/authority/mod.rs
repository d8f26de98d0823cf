// SPDX-License-Identifier: GPL-2.0-only

//! Certificates for tests.

use std::{fs, net::SocketAddr, path::Path, process::Command};

/// Creates the authority `ca`, and certificates of `servers`, each with the addresses of all
/// servers, in `room`, with openssl(1).
pub fn certify(room: &Path, servers: &[(&str, SocketAddr)]) {
    let openssl = |args: &str| {
        let run = Command::new("openssl")
            .args(args.split(' '))
            .current_dir(room)
            .output();
        let output = run.expect("openssl runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args}: {said}");
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc";
    openssl(&format!(
        "req -x509 {key} -days 2 -keyout ca.key -out ca.pem -subj /CN=realm"
    ));
    let names = servers.iter().map(|(_, at)| format!("IP:{}", at.ip()));
    let names = names.collect::<Vec<_>>().join(",");
    let ext = format!("basicConstraints=CA:FALSE\nsubjectAltName={names}\n");
    fs::write(room.join("ext"), ext).unwrap();
    for (name, _) in servers {
        openssl(&format!(
            "req -new {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"
        ));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -days 2 -extfile ext -out {name}.pem"
        ));
    }
}
