//! Hosts made of network namespaces that belong to nobody but this process: when it ends, however it ends, they go.

use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ferro_fabric::netlink::{Netlink, namespace};

/// How long a test waits for what should take a second: the machines are shared, and slowness is not a failure.
pub const GENEROUSLY: Duration = Duration::from_mins(1);
/// How long one packet may take.
pub const SHORTLY: Duration = Duration::from_millis(500);

/// A host with a network of its own.
pub struct Host(OwnedFd);

impl Host {
    /// A host that has only itself.
    pub fn new() -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test makes network namespaces and needs root: use sudo"
        );
        let host = Self(namespace::create().unwrap());
        // An address of IPv6 is there at once.
        host.set("ipv6/conf/default/accept_dad", "0");
        host.ip("link set lo up");
        host
    }

    /// A host that passes packets on, and checks strictly where they come from.
    pub fn router() -> Self {
        let host = Self::new();
        host.set("ipv4/ip_forward", "1");
        host.set("ipv6/conf/all/forwarding", "1");
        for which in ["all", "default"] {
            host.set(&format!("ipv4/conf/{which}/rp_filter"), "1");
        }
        host
    }

    pub fn set(&self, name: &str, value: &str) {
        let path = format!("/proc/sys/net/{name}");
        self.inside(|| fs::write(path, value)).unwrap();
    }

    pub fn inside<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        namespace::inside(self.0.as_fd(), work)
    }

    pub fn namespace(&self) -> OwnedFd {
        self.0.try_clone().unwrap()
    }

    /// Runs a program there that must not fail.
    pub fn run(&self, program: &str, arguments: &str) -> String {
        self.try_run(program, arguments, "").unwrap_or_else(|error| panic!("{program} {arguments}: {error}"))
    }

    pub fn try_run(&self, program: &str, arguments: &str, input: &str) -> Result<String, String> {
        let output = self.inside(|| {
            let mut command = Command::new(program);
            command.args(arguments.split_whitespace());
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn()?;
            child.stdin.take().unwrap().write_all(input.as_bytes())?;
            child.wait_with_output()
        });
        let output = output.map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Runs `ip` there, once for each line.
    pub fn ip(&self, commands: &str) {
        self.try_run("ip", "-batch -", commands).unwrap_or_else(|error| panic!("{commands}: {error}"));
    }

    pub fn nft(&self, rules: &str) {
        self.try_run("nft", "-f -", rules).unwrap_or_else(|error| panic!("{rules}: {error}"));
    }

    /// Lays a wire to another host.
    pub fn wire(&self, name: &str, other: &Self, peer: &str) {
        self.inside(|| {
            let mut netlink = Netlink::open()?;
            netlink.create_veth(name, peer, Some(other.0.as_fd()))?;
            let link = netlink.link(name)?.ok_or(io::ErrorKind::NotFound)?;
            netlink.set_up(link.index)
        })
        .unwrap();
        other.ip(&format!("link set {peer} up"));
    }

    /// Everything that routes could have left behind.
    pub fn state(&self) -> String {
        let links = self.run("ip", "-o link");
        // Whether a link has found the other end already is nobody's work.
        let links = links.lines().map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            format!("{} {}\n", words[1], words.windows(2).find(|pair| pair[0] == "mtu").unwrap()[1])
        });
        let others = ["route show table all", "-6 route show table all", "rule", "-6 rule", "-o addr"];
        let others = others.map(|what| self.run("ip", what));
        links.chain(others).chain([self.run("nft", "list ruleset")]).collect()
    }

    pub fn udp(&self, address: &str) -> UdpSocket {
        let socket = self.inside(|| UdpSocket::bind(address)).unwrap();
        socket.set_read_timeout(Some(SHORTLY)).unwrap();
        socket
    }

    pub fn listen(&self, address: &str) -> TcpListener {
        self.inside(|| TcpListener::bind(address)).unwrap()
    }

    pub fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.inside(|| TcpStream::connect_timeout(&address, SHORTLY))
    }
}

/// Tries until it succeeds.
pub fn eventually<T>(what: &str, mut check: impl FnMut() -> Result<T, String>) -> (T, Duration) {
    let begin = Instant::now();
    loop {
        match check() {
            Ok(value) => return (value, begin.elapsed()),
            Err(error) if begin.elapsed() > GENEROUSLY => panic!("{what}: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Sends something, has it answered, and gives back whom the other side saw.
pub fn exchange(from: &UdpSocket, to: &UdpSocket, at: SocketAddr) -> Result<IpAddr, String> {
    let say = |error: io::Error| error.to_string();
    drain(to);
    drain(from);
    from.send_to(b"there", at).map_err(say)?;
    let mut buffer = [0; 64];
    let (_, seen) = to.recv_from(&mut buffer).map_err(|error| format!("nothing arrives: {error}"))?;
    to.send_to(b"back", seen).map_err(say)?;
    let (_, answered) =
        from.recv_from(&mut buffer).map_err(|error| format!("nothing comes back: {error}"))?;
    if answered == at { Ok(seen.ip()) } else { Err(format!("{answered} answers, not {at}")) }
}

/// Forgets what came late from an attempt before.
pub fn drain(socket: &UdpSocket) {
    socket.set_nonblocking(true).unwrap();
    let mut buffer = [0; 64];
    while socket.recv_from(&mut buffer).is_ok() {}
    socket.set_nonblocking(false).unwrap();
}
