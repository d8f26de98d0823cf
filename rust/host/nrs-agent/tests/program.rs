// SPDX-License-Identifier: GPL-2.0-only

//! The program, without a module: how it starts, tells its status, and ends.

mod loopback;

use std::{
    fs,
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

/// An agent that runs, and is killed when the test fails.
struct Agent(Child);

impl Agent {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// Tells the agent to end; returns whether it did so by itself.
    fn end(&mut self) -> bool {
        let id = self.0.id().to_string();
        let told = Command::new("kill").arg(&id).status().unwrap();
        assert!(told.success());
        wait(|| self.0.try_wait().unwrap()).success()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // One that has ended is left alone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
    let (a, b) = (loopback::address(), loopback::address());
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
    let mut first = Agent::start(&mut first);
    let mut heard = [0; 64];
    let len = manager.recv(&mut heard).unwrap();
    assert_eq!(&heard[..len], b"READY=1");
    let mut second = Agent::start(&mut command(room.path(), "b"));
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
    assert!(second.end());
    wait(|| service(&status()?).peers.is_empty().then_some(()));
    assert!(first.end());
    assert!(!room.path().join("a.socket").exists());
}
