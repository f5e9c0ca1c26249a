//! The built binary on a free port with a data directory of its own, and stock git beside it.
// What fails here fails the test.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used, clippy::expect_used)]

pub mod pair;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A pack without objects, whole.
pub fn empty_pack() -> Vec<u8> {
    let mut pack = b"PACK\0\0\0\x02\0\0\0\0".to_vec();
    pack.extend([0x02, 0x9d, 0x08, 0x82, 0x3b, 0xd8, 0xa8, 0xea, 0xb5, 0x10]);
    pack.extend([0xad, 0x6a, 0xc7, 0x5c, 0x82, 0x3c, 0xfd, 0x3e, 0xd3, 0x1e]);
    pack
}

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it listens for SSH, if it does.
    pub ssh_address: Option<SocketAddr>,
    /// Where it listens for `git://`, if it does.
    pub git_address: Option<SocketAddr>,
    data: PathBuf,
    _directory: Option<tempfile::TempDir>,
}

impl Server {
    /// Starts a server with a fresh data directory.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with a fresh data directory and more flags.
    pub fn start_with(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let (child, [address, ssh_address, git_address]) = launch(&data, flags);
        Self {
            child,
            address: address.expect("no address was printed"),
            ssh_address,
            git_address,
            data,
            _directory: Some(directory),
        }
    }

    /// Starts a server whose data directory has a long name.
    pub fn start_far_down() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("deep".repeat(30)).join("data");
        std::fs::create_dir_all(data.parent().unwrap()).unwrap();
        let (child, [address, ssh_address, git_address]) = launch(&data, &[]);
        Self {
            child,
            address: address.expect("no address was printed"),
            ssh_address,
            git_address,
            data,
            _directory: Some(directory),
        }
    }

    /// The URL of a repository.
    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// The URL of a repository over SSH.
    pub fn ssh_url(&self, name: &str) -> String {
        format!("ssh://git@{}/{name}", self.ssh_address.expect("no SSH"))
    }

    /// The URL of a repository over `git://`.
    pub fn git_url(&self, name: &str) -> String {
        format!("git://{}/{name}", self.git_address.expect("no git://"))
    }

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Asks the server to drain, and waits until it has; gives back how it ended.
    pub fn stop(&mut self) -> std::process::ExitStatus {
        self.ask_to_stop();
        self.child.wait().unwrap()
    }

    /// Asks the server to drain.
    pub fn ask_to_stop(&self) {
        signal(&self.child, "-TERM");
    }

    /// A connection over which a request is under way: the server has asked for its body, which is so long.
    pub fn begin(&self, target: &str, headers: &[(&str, &str)], body_len: usize) -> TcpStream {
        let mut head = format!(
            "POST {target} HTTP/1.1\r\nHost: {}\r\nExpect: 100-continue\r\n",
            self.address
        );
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("Content-Length: {body_len}\r\nConnection: close\r\n\r\n");
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = [0; 25];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream
    }

    /// What the server has logged; all of it once it has stopped.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.data.with_extension("log")).unwrap()
    }

    /// Ends the server without a chance to tidy up.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts again over the same data.
    pub fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// Starts again over the same data with more flags.
    pub fn restart_with(&mut self, flags: &[&str]) {
        self.kill();
        let (child, [address, ssh_address, git_address]) = launch(&self.data, flags);
        self.child = child;
        self.address = address.expect("no address was printed");
        (self.ssh_address, self.git_address) = (ssh_address, git_address);
    }

    /// Runs a `cuesta` command over the same data; must succeed. Gives back what it printed.
    pub fn cuesta(&self, arguments: &[&str]) -> String {
        let output = self.try_cuesta(arguments);
        assert!(
            output.status.success(),
            "cuesta {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a `cuesta` command over the same data.
    pub fn try_cuesta(&self, arguments: &[&str]) -> Output {
        binary().args(arguments).arg("--data").arg(&self.data).output().unwrap()
    }

    /// One HTTP/1.1 exchange on a connection of its own: bytes out, everything that comes back.
    pub fn raw(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    }

    /// A request without a body; status, headers and body of the answer.
    pub fn get(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
        self.request(method, target, headers, b"")
    }

    /// A request with a body of known length.
    pub fn request(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut request = format!("{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            request += &format!("Content-Length: {}\r\n", body.len());
        }
        let request = [request.as_bytes(), b"\r\n", body].concat();
        Answer::parse(&self.raw(&request))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An HTTP answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn parse(bytes: &[u8]) -> Self {
        let end = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("no end of the head");
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self {
            status,
            head,
            body: bytes[end + 4..].to_vec(),
        }
    }

    /// The value of a header, if it is there.
    pub fn header(&self, name: &str) -> Option<&str> {
        let pairs = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        pairs
            .into_iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Starts the server; gives back where it listens: for HTTP, SSH and `git://`.
fn launch(data: &Path, flags: &[&str]) -> (Child, [Option<SocketAddr>; 3]) {
    let mut command = binary();
    command.args(["serve", "--data"]).arg(data).args(flags);
    if !flags.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(data.with_extension("log"))
        .unwrap();
    let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    // An empty line ends what tells where it listens.
    let said: Vec<String> = out
        .lines()
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .collect();
    let after = |scheme: &str| {
        let (_, rest) = said.iter().find_map(|line| line.rsplit_once(scheme))?;
        rest.trim_end_matches('/').parse().ok()
    };
    let address = after("http://").or_else(|| after("https://"));
    (child, [address, after("ssh://git@"), after("git://")])
}

fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cuesta"));
    command.env_clear();
    command
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .args([name, &child.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
}

/// A directory with git in it, apart from the user's configuration.
pub struct Work {
    directory: tempfile::TempDir,
}

impl Work {
    pub fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A new SSH key without a passphrase, and its public half beside it.
    pub fn ssh_key(&self) -> PathBuf {
        let key = self.path("key");
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&key)
            .status()
            .unwrap();
        assert!(made.success());
        key
    }

    /// A new repository with one commit on `main`.
    pub fn repository(&self, name: &str, format: &str) -> PathBuf {
        let path = self.path(name);
        self.git(&[
            "init",
            "-q",
            "-b",
            "main",
            &format!("--object-format={format}"),
            path.to_str().unwrap(),
        ]);
        self.commit(&path, "first", "a file\n");
        path
    }

    /// One more commit, with one file changed.
    pub fn commit(&self, repository: &Path, message: &str, content: &str) -> String {
        std::fs::write(repository.join("file"), content).unwrap();
        self.git_in(repository, &["add", "file"]);
        self.git_in(repository, &["commit", "-q", "-m", message]);
        self.git_in(repository, &["rev-parse", "HEAD"])
    }

    pub fn git(&self, arguments: &[&str]) -> String {
        self.git_in(self.directory.path(), arguments)
    }

    /// Runs git; must succeed. Gives back what it printed, trimmed.
    pub fn git_in(&self, directory: &Path, arguments: &[&str]) -> String {
        let output = self.try_git_in(directory, arguments);
        assert!(
            output.status.success(),
            "git {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Runs git.
    pub fn try_git_in(&self, directory: &Path, arguments: &[&str]) -> Output {
        self.command(directory, arguments).output().unwrap()
    }

    /// A git to be run.
    pub fn command(&self, directory: &Path, arguments: &[&str]) -> Command {
        let home = self.directory.path();
        let mut command = Command::new("git");
        command
            .current_dir(directory)
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", home)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .envs([
                ("GIT_AUTHOR_NAME", "A"),
                ("GIT_AUTHOR_EMAIL", "a@x"),
                ("GIT_COMMITTER_NAME", "C"),
                ("GIT_COMMITTER_EMAIL", "c@x"),
            ]);
        command
    }

    /// Runs git with that input; must succeed. Gives back what it printed, trimmed.
    pub fn git_with(&self, directory: &Path, arguments: &[&str], input: &[u8]) -> String {
        let mut command = self.command(directory, arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "git {arguments:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}
