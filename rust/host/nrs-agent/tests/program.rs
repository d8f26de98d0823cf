// SPDX-License-Identifier: GPL-2.0-only

//! The program, without a module: how it starts, tells its status, and ends.

use std::{
    fs,
    net::TcpListener,
    os::unix::{fs::PermissionsExt as _, net::UnixDatagram},
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use nrs_agent::{
    socket,
    status::{ServiceStatus, Status},
};

/// Time for whatever is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Writes a private file.
fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// An agent with files in `room`.
fn command(room: &Path, name: &str) -> Command {
    let path = |end: &str| room.join(format!("{name}.{end}"));
    fs::create_dir_all(path("state")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nrs-agent"));
    command
        .arg("--config")
        .arg(path("toml"))
        .arg("--socket")
        .arg(path("socket"))
        .arg("--state")
        .arg(path("state"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .env("RUST_LOG", "off");
    command
}

/// Waits until `found` finds something.
fn wait<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "it does not come");
        sleep(Duration::from_millis(50));
    }
}

/// Tells `child` to end; returns whether it did so by itself.
fn end(child: &mut Child) -> bool {
    let id = child.id().to_string();
    let told = Command::new("kill").arg(&id).status().unwrap();
    assert!(told.success());
    wait(|| child.try_wait().unwrap()).success()
}

#[test]
fn what_is_wrong_is_said_in_lines() {
    let room = tempfile::tempdir().unwrap();
    let said = |text: &str| {
        write(&room.path().join("a.toml"), text, 0o644);
        let output = command(room.path(), "a").output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        said.replace(room.path().to_str().unwrap(), "")
    };
    let secret = room.path().join("secret");
    write(&secret, "none", 0o640);
    let small = format!(
        "realm = \"r\"\nserver = \"a\"\nsecret = \"{}\"\ntransport = \"tcp\"\n[service.svc]\n",
        secret.display()
    );
    let wrong = small.replace("tcp", "udp").replace("\"r\"", "1");
    let want = "nrs-agent: /a.toml:1:9: realm: not a string, but integer\n\
        nrs-agent: /a.toml:4:13: transport: neither tls nor tcp\n";
    assert_eq!(said(&wrong), want);
    let want = "nrs-agent: /a.toml:3:10: secret: /secret: others than the owner may use this file \
        (mode 0640): chmod 0600\n";
    assert_eq!(said(&small), want);
    write(&secret, "none", 0o600);
    let want = "nrs-agent: /secret: not 32 hexadecimal digits, as of: openssl rand -hex 16\n";
    assert_eq!(said(&small), want);
}

#[test]
fn agents_find_each_other_and_end() {
    let room = tempfile::tempdir().unwrap();
    let secret = room.path().join("secret");
    write(&secret, "000102030405060708090a0b0c0d0e0f\n", 0o600);
    let listeners = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let [a, b] = listeners.map(|listener| listener.local_addr().unwrap());
    for (name, address) in [("a", a), ("b", b)] {
        let text = format!(
            "realm = \"r\"\nserver = \"{name}\"\nsecret = \"{}\"\ntransport = \"tcp\"\n\
             listen = \"{address}\"\n[servers]\na = \"{a}\"\nb = \"{b}\"\n[service.svc]\n",
            secret.display()
        );
        write(&room.path().join(format!("{name}.toml")), &text, 0o644);
    }
    // As the service manager hears it.
    let manager = UnixDatagram::bind(room.path().join("manager")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut first = command(room.path(), "a");
    first.env("NOTIFY_SOCKET", room.path().join("manager"));
    let mut first = first.spawn().unwrap();
    let mut heard = [0; 64];
    let len = manager.recv(&mut heard).unwrap();
    assert_eq!(&heard[..len], b"READY=1");
    let mut second = command(room.path(), "b").spawn().unwrap();
    let status = || socket::read(&room.path().join("a.socket")).ok()?;
    let service = |status: &Status| -> ServiceStatus { status.services[0].clone() };
    let seen = wait(|| {
        let service = service(&status()?);
        (!service.peers.is_empty()).then_some(service)
    });
    assert_eq!(
        (&*seen.peers[0].server, seen.peers[0].numbers.connected),
        ("b", 1)
    );
    // There is no module, which is tried again.
    assert!(
        seen.failure.is_some() && seen.numbers.bound == 0,
        "{seen:?}"
    );
    assert!(end(&mut second));
    wait(|| service(&status()?).peers.is_empty().then_some(()));
    assert!(end(&mut first));
    assert!(!room.path().join("a.socket").exists());
}
