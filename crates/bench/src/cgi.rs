//! `git http-backend` behind the smallest HTTP/1.1 server that does it justice: the yardstick of tests and benches.
//!
//! A thread per connection, a process per request, no configuration. It costs less than a web server with a CGI module,
//! so comparisons with it flatter stock git.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Bytes of one line of a request head or chunk header.
const LINE_BYTES_MAX: u64 = 64 << 10;
const COPY_BYTES: usize = 64 << 10;

/// What the yardstick serves and how git is configured for it.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The directory that holds the bare repositories.
    pub root: PathBuf,
    /// Settings for git (`name`, `value`), given by environment.
    pub settings: Vec<(String, String)>,
}

impl Backend {
    /// Serves every repository below `root`, pushes included, with garbage collection off.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let settings = [
            ("http.receivepack", "true"),
            ("gc.auto", "0"),
            ("receive.autogc", "false"),
            ("maintenance.auto", "false"),
            ("safe.directory", "*"),
            ("uploadpack.allowFilter", "true"),
            ("uploadpack.allowAnySHA1InWant", "true"),
        ];
        let settings = settings
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
        Self {
            root: root.into(),
            settings,
        }
    }

    /// Listens on a port of the system's choice and serves from threads of its own until the process ends.
    pub fn spawn(self) -> Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || self.serve(&listener));
        Ok(address)
    }

    /// Serves connections of `listener` until accepting fails.
    pub fn serve(self, listener: &TcpListener) -> Result<()> {
        let backend = Arc::new(self);
        for stream in listener.incoming() {
            let (stream, backend) = (stream?, backend.clone());
            std::thread::spawn(move || {
                if let Err(error) = serve_connection(&backend, stream) {
                    eprintln!("http-backend: {error:#}");
                }
            });
        }
        Ok(())
    }

    fn command(&self, request: &Head) -> Command {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let mut command = Command::new("git");
        command.arg("http-backend").stdin(Stdio::piped()).stdout(Stdio::piped());
        command
            .env("GIT_PROJECT_ROOT", &self.root)
            .env("GIT_HTTP_EXPORT_ALL", "1");
        command
            .env("REQUEST_METHOD", &request.method)
            .env("PATH_INFO", path)
            .env("QUERY_STRING", query);
        command
            .env("REMOTE_USER", "tester")
            .env("REMOTE_ADDR", "127.0.0.1")
            .env("SERVER_PROTOCOL", "HTTP/1.1");
        let passed = [
            ("content-type", "CONTENT_TYPE"),
            ("content-length", "CONTENT_LENGTH"),
            ("content-encoding", "HTTP_CONTENT_ENCODING"),
            ("git-protocol", "GIT_PROTOCOL"),
        ];
        for (header, variable) in passed {
            if let Some(value) = request.header(header) {
                command.env(variable, value);
            }
        }
        command.env("GIT_CONFIG_COUNT", self.settings.len().to_string());
        for (index, (name, value)) in self.settings.iter().enumerate() {
            command
                .env(format!("GIT_CONFIG_KEY_{index}"), name)
                .env(format!("GIT_CONFIG_VALUE_{index}"), value);
        }
        command
    }
}

/// Makes a bare repository that the yardstick serves as `/<name>`.
pub fn init_bare(root: &Path, name: &str, object_format: &str) -> Result<PathBuf> {
    let path = root.join(name);
    let format = format!("--object-format={object_format}");
    let status = Command::new("git")
        .args(["-c", "init.defaultBranch=main", "init", "--quiet", "--bare", &format])
        .arg(&path)
        .status()?;
    if !status.success() {
        bail!("git init failed for '{}'", path.display());
    }
    Ok(path)
}

struct Head {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
}

impl Head {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(header, _)| header == name)
            .map(|(_, value)| value.as_str())
    }
}

fn serve_connection(backend: &Backend, stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::with_capacity(COPY_BYTES, stream.try_clone()?);
    let mut output = BufWriter::with_capacity(COPY_BYTES, stream);
    while let Some(head) = read_head(&mut input)? {
        if head
            .header("expect")
            .is_some_and(|value| value.eq_ignore_ascii_case("100-continue"))
        {
            output.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            output.flush()?;
        }
        answer(backend, &head, &mut input, &mut output)?;
        output.flush()?;
        if head
            .header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"))
        {
            break;
        }
    }
    Ok(())
}

fn read_line(input: &mut impl BufRead) -> Result<Option<String>> {
    let mut line = Vec::new();
    if input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let line = String::from_utf8(line).context("a line of the request is not text")?;
    Ok(Some(line.trim_end_matches(['\r', '\n']).to_owned()))
}

fn read_head(input: &mut impl BufRead) -> Result<Option<Head>> {
    let Some(first) = read_line(input)? else {
        return Ok(None);
    };
    let mut words = first.split(' ').map(str::to_owned);
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        bail!("not an HTTP request: '{first}'");
    };
    let mut headers = Vec::new();
    while let Some(line) = read_line(input)?.filter(|line| !line.is_empty()) {
        if let Some((name, value)) = line.split_once(':') {
            headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    Ok(Some(Head {
        method,
        target,
        headers,
    }))
}

/// Runs one request: the body goes in on a thread of its own, because git may answer before it has read everything.
fn answer(backend: &Backend, head: &Head, input: &mut impl BufRead, output: &mut impl Write) -> Result<()> {
    let mut child = backend.command(head).spawn().context("cannot run 'git http-backend'")?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    let mut stdout = BufReader::with_capacity(COPY_BYTES, child.stdout.take().context("no stdout")?);
    let body = read_body(head, input, &mut stdin);
    drop(stdin);
    let answered = send_answer(&mut stdout, output, head.method == "HEAD");
    child.wait()?;
    body?;
    answered
}

/// Copies the request's body to git; a git that stops reading is not an error, the rest is then read and dropped.
fn read_body(head: &Head, input: &mut impl BufRead, stdin: &mut impl Write) -> Result<()> {
    let chunked = head
        .header("transfer-encoding")
        .is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
    if !chunked {
        let length = head
            .header("content-length")
            .map_or(Ok(0), str::parse)
            .context("bad content-length")?;
        return copy_exact(input, stdin, length);
    }
    loop {
        let line = read_line(input)?.context("the body ends within a chunk header")?;
        let digits = line.split(';').next().unwrap_or_default();
        let length = u64::from_str_radix(digits.trim(), 16).context("bad chunk length")?;
        copy_exact(input, stdin, length)?;
        read_line(input)?;
        if length == 0 {
            return Ok(());
        }
    }
}

fn copy_exact(input: &mut impl BufRead, output: &mut impl Write, mut length: u64) -> Result<()> {
    let mut open = true;
    while length > 0 {
        let available = input.fill_buf()?;
        if available.is_empty() {
            bail!("the body is {length} bytes short");
        }
        let count = available.len().min(usize::try_from(length)?);
        open = open && output.write_all(&available[..count]).is_ok();
        input.consume(count);
        length -= count as u64;
    }
    Ok(())
}

fn send_answer(stdout: &mut impl BufRead, output: &mut impl Write, head_only: bool) -> Result<()> {
    let mut status = "200 OK".to_owned();
    let mut headers = String::new();
    while let Some(line) = read_line(stdout)?.filter(|line| !line.is_empty()) {
        match line.split_once(": ") {
            Some(("Status", value)) => value.clone_into(&mut status),
            _ => headers = headers + &line + "\r\n",
        }
    }
    write!(
        output,
        "HTTP/1.1 {status}\r\n{headers}Transfer-Encoding: chunked\r\n\r\n"
    )?;
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let count = stdout.read(&mut buffer)?;
        if head_only && count > 0 {
            continue;
        }
        write!(output, "{count:x}\r\n")?;
        output.write_all(&buffer[..count])?;
        output.write_all(b"\r\n")?;
        output.flush()?;
        if count == 0 {
            return Ok(());
        }
    }
}
