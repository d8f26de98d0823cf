// SPDX-License-Identifier: GPL-2.0-only

//! The program without a module: start, status, and end.

mod authority;
mod loopback;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt as _, net::UnixDatagram},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use nrs_agent::{
    socket,
    status::{ServiceStatus, Status},
};

/// Maximum time for any condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// Writes a file with the given mode.
fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Returns the command of an agent with files in `room`, in missing directories. With umask 0 files
/// are accessible to all users unless the agent restricts their mode.
fn command(room: &Path, name: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", "umask 0; exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_nrs-agent"))
        .arg("--config")
        .arg(room.join(format!("{name}.toml")))
        .arg("--socket")
        .arg(socket(room, name))
        .arg("--state")
        .arg(room.join(format!("{name}/lib/state")))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .env("RUST_LOG", "off");
    command
}

/// Returns the path of the socket of an agent.
fn socket(room: &Path, name: &str) -> PathBuf {
    room.join(format!("{name}/run/status"))
}

/// Writes the secret and the configuration of an agent that listens at `address`, extended by
/// `more`.
fn configure(room: &Path, name: &str, address: SocketAddr, more: &str) {
    let secret = room.join("secret");
    write(&secret, "000102030405060708090a0b0c0d0e0f\n", 0o600);
    let text = format!(
        "realm = \"r\"\nserver = \"{name}\"\nsecret = \"{}\"\nlisten = \"{address}\"\n{more}\
         [service.svc]\n",
        secret.display()
    );
    write(&room.join(format!("{name}.toml")), &text, 0o644);
}

/// Waits until `found` returns a value.
fn wait<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "timeout");
        sleep(Duration::from_millis(50));
    }
}

/// Running agent, which is killed if the test fails.
struct Agent(Child);

impl Agent {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// Terminates the agent by a signal; returns true if it exits successfully.
    fn end(&mut self) -> bool {
        let id = self.0.id().to_string();
        let told = Command::new("kill").arg(&id).status().unwrap();
        assert!(told.success());
        wait(|| self.0.try_wait().unwrap()).success()
    }

    /// Returns the output of the agent, which has exited, to stderr.
    fn stderr(&mut self) -> String {
        let mut said = String::new();
        let mut stderr = self.0.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Has no effect on an agent that has exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn faults_are_printed_one_per_line() {
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
    let want = "nrs-agent: /a.toml:1:9: realm: expected a string, found integer\n\
        nrs-agent: /a.toml:4:13: transport: expected tls or tcp\n";
    assert_eq!(said(&wrong), want);
    let want = "nrs-agent: /a.toml:3:10: secret: /secret: file accessible to group or others \
        (mode 0640): chmod 0600\n";
    assert_eq!(said(&small), want);
    write(&secret, "none", 0o600);
    let want = "nrs-agent: /secret: expected 32 hexadecimal digits; \
                create them with: openssl rand -hex 16\n";
    assert_eq!(said(&small), want);
}

#[test]
fn agents_find_each_other_and_end() {
    let room = tempfile::tempdir().unwrap();
    let (a, b) = (loopback::address(), loopback::address());
    for (name, address) in [("a", a), ("b", b)] {
        let more = format!("transport = \"tcp\"\n[servers]\na = \"{a}\"\nb = \"{b}\"\n");
        configure(room.path(), name, address, &more);
    }
    // Acts as the service manager.
    let manager = UnixDatagram::bind(room.path().join("manager")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut first = command(room.path(), "a");
    first.env("NOTIFY_SOCKET", room.path().join("manager"));
    let mut first = Agent::start(&mut first);
    let mut heard = [0; 64];
    let len = manager.recv(&mut heard).unwrap();
    assert_eq!(&heard[..len], b"READY=1");
    let mut second = Agent::start(&mut command(room.path(), "b"));
    let status = || socket::read(&socket(room.path(), "a")).ok()?;
    let service = |status: &Status| -> ServiceStatus { status.services[0].clone() };
    let connected = |one: &ServiceStatus| one.peers[0].numbers.connected == 1;
    let seen = wait(|| Some(service(&status()?)).filter(connected));
    assert_eq!((&*seen.peers[0].server, seen.peers.len()), ("b", 1));
    // Status and state are inaccessible to other users.
    for (path, mode) in [("run", 0o700), ("run/status", 0o600), ("lib/state", 0o700)] {
        let metadata = fs::metadata(room.path().join("a").join(path)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, mode, "{path}");
    }
    // There is no module; the bind is retried.
    assert!(
        seen.failure.is_some() && seen.numbers.bound == 0,
        "{seen:?}"
    );
    assert!(second.end());
    wait(|| Some(service(&status()?)).filter(|one| !connected(one)));
    assert!(first.end());
    assert!(!socket(room.path(), "a").exists());
}

#[test]
fn of_agents_that_start_at_once_one_runs() {
    let room = tempfile::tempdir().unwrap();
    let address = loopback::address();
    configure(room.path(), "a", address, "transport = \"tcp\"\n");
    let mut all = [(); 2].map(|()| Agent::start(&mut command(room.path(), "a")));
    let ended = wait(|| {
        all.iter_mut()
            .position(|one| one.0.try_wait().unwrap().is_some())
    });
    let said = all[ended].stderr();
    assert!(
        said.ends_with("/a/run/status: another agent is already running\n"),
        "{said}"
    );
    let path = socket(room.path(), "a");
    wait(|| socket::read(&path).ok()?);
    assert!(all[1 - ended].end());
    // An agent that cannot listen leaves no files behind.
    let _taken = TcpListener::bind(address).unwrap();
    let output = command(room.path(), "a").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(!path.exists());
}

#[test]
fn strangers_do_not_fill_the_log() {
    let room = tempfile::tempdir().unwrap();
    let address = loopback::address();
    authority::certify(room.path(), &[("a", address)]);
    let path = room.path().display();
    let more = format!(
        "ca = \"{path}/ca.pem\"\ncertificate = \"{path}/a.pem\"\nkey = \"{path}/a.key\"\n\
         [servers]\na = \"{address}\"\n"
    );
    configure(room.path(), "a", address, &more);
    let mut command = command(room.path(), "a");
    command.env_remove("RUST_LOG").stdout(Stdio::piped());
    let mut agent = Agent::start(&mut command);
    for _ in 0..2 {
        let mut stream = wait(|| TcpStream::connect(address).ok());
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        // The agent closes the connection.
        let _ = stream.read_to_end(&mut answer);
    }
    wait(|| socket::read(&socket(room.path(), "a")).ok()?);
    assert!(agent.end());
    let mut log = String::new();
    let mut stdout = agent.0.stdout.take().unwrap();
    stdout.read_to_string(&mut log).unwrap();
    assert!(log.is_empty(), "{log}");
}

#[test]
fn refused_certificates_are_logged() {
    let room = tempfile::tempdir().unwrap();
    let servers = ["a", "b"].map(|name| (name, loopback::address()));
    authority::certify(room.path(), &servers);
    let own = format!("IP:{}", servers[1].1.ip());
    let past = "-not_before 20250101000000Z -not_after 20250102000000Z";
    authority::sign(room.path(), "b", &own, past);
    let path = room.path().display();
    let mut agents = servers.map(|(name, address)| {
        let more = format!(
            "ca = \"{path}/ca.pem\"\ncertificate = \"{path}/{name}.pem\"\n\
             key = \"{path}/{name}.key\"\n[servers]\na = \"{}\"\nb = \"{}\"\n",
            servers[0].1, servers[1].1
        );
        configure(room.path(), name, address, &more);
        let mut command = command(room.path(), name);
        command.env("RUST_LOG", "zenoh=debug");
        Agent::start(command.stdout(Stdio::piped()))
    });
    // a, which connects, logs the reason for which it refuses b.
    let stdout = BufReader::new(agents[0].0.stdout.take().unwrap());
    let since = Instant::now();
    let reason = stdout.lines().map(Result::unwrap).find(|line| {
        assert!(since.elapsed() < PATIENCE, "timeout");
        line.contains(&servers[1].1.to_string()) && line.contains("invalid peer certificate")
    });
    assert!(reason.unwrap().contains("expired"));
    let status = wait(|| socket::read(&socket(room.path(), "a")).ok()?);
    let peer = &status.services[0].peers[0];
    assert_eq!((&*peer.server, peer.numbers.connected), ("b", 0));
}
