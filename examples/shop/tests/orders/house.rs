//! The shop as processes on loopback, two instances of each service but the one with state.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use shop::report::{Line, Summary};

/// In the order in which they are started: each asks only services before it.
const SERVICES: [(&str, usize); 6] =
    [("catalog", 2), ("cart", 1), ("payment", 2), ("recommendation", 2), ("checkout", 2), ("front", 2)];

/// One instance.
struct Instance {
    process: Process,
    address: SocketAddr,
}

/// A child that ends with this value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// All services.
pub struct House {
    folder: PathBuf,
    services: BTreeMap<&'static str, Vec<Instance>>,
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl House {
    /// Starts all services, with the products of the manifest.
    pub fn open(name: &str) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("shop-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("products.json"), products()?)?;
        let mut house = Self { folder, services: BTreeMap::new() };
        for (service, count) in SERVICES {
            for _ in 0..count {
                let instance = house.start(service, "127.0.0.1:0".parse()?)?;
                house.services.entry(service).or_default().push(instance);
            }
        }
        Ok(house)
    }

    fn start(&self, service: &'static str, listen: SocketAddr) -> Result<Instance> {
        let mut command = self.command(service);
        command.args(["--listen", &listen.to_string(), "--drain", "1"]);
        match service {
            "catalog" => drop(command.arg("--products").arg(self.folder.join("products.json"))),
            "cart" => drop(command.arg("--data").arg(&self.folder)),
            _ => drop(command.env("PAYMENT_SECRET", "secret")),
        }
        let mut process = Process(command.spawn()?);
        let said = lines(&mut process)?.next().with_context(|| format!("{service} does not start"))??;
        let address = said.strip_prefix("listening on ").context("it does not say where it is")?.parse()?;
        Ok(Instance { process, address })
    }

    /// The program in that role, knowing where all others are.
    fn command(&self, role: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shop"));
        command.arg(role).stdout(Stdio::piped());
        for (service, instances) in &self.services {
            let places: Vec<_> = instances.iter().map(|instance| instance.address.to_string()).collect();
            command.arg("--to").arg(format!("{service}={}", places.join(",")));
        }
        command
    }

    /// Lets customers in, who place so many orders in a second.
    pub fn customers(&self, rate: u32) -> Result<Customers> {
        let mut command = self.command("load");
        let mut process = Process(command.args(["--json", "--rate", &rate.to_string()]).spawn()?);
        let lines = lines(&mut process)?;
        Ok(Customers { process, lines })
    }

    fn first(&mut self, service: &str) -> Result<&mut Instance> {
        self.services.get_mut(service).and_then(|all| all.first_mut()).context("there is no such service")
    }

    /// Ends the first instance of a service without a warning.
    pub fn kill(&mut self, service: &str) -> Result<()> {
        let child = &mut self.first(service)?.process.0;
        child.kill()?;
        Ok(child.wait().map(drop)?)
    }

    /// Ends all instances without a warning.
    pub fn kill_all(&mut self, service: &str) -> Result<()> {
        for instance in self.services.get_mut(service).context("there is no such service")? {
            instance.process.0.kill()?;
            instance.process.0.wait()?;
        }
        Ok(())
    }

    /// Tells the first instance to stop.
    pub fn stop(&mut self, service: &str) -> Result<()> {
        terminate(&self.first(service)?.process)
    }

    /// Whether the first instance has ended, and well.
    pub fn has_ended(&mut self, service: &str) -> Result<bool> {
        Ok(self.first(service)?.process.0.try_wait()?.is_some_and(|status| status.success()))
    }

    /// Starts the first instance where it was.
    pub fn start_again(&mut self, service: &'static str) -> Result<()> {
        let address = self.first(service)?.address;
        let instance = self.start(service, address)?;
        *self.first(service)? = instance;
        Ok(())
    }

    /// Starts all instances where they were.
    pub fn start_all(&mut self, service: &'static str) -> Result<()> {
        let places: Vec<_> = self.services[service].iter().map(|instance| instance.address).collect();
        let all = places.into_iter().map(|place| self.start(service, place)).collect::<Result<_>>()?;
        self.services.insert(service, all);
        Ok(())
    }

    /// What the front end answers to a request.
    pub fn ask(&self, request: &str, body: &str) -> Result<String> {
        let mut stream = TcpStream::connect(self.services["front"][0].address)?;
        let length = body.len();
        write!(
            stream,
            "{request}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// Running customers.
pub struct Customers {
    process: Process,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Customers {
    /// What they say next.
    pub fn next(&mut self) -> Result<Line> {
        let line = self.lines.next().context("the customers are gone")??;
        serde_json::from_str(&line).with_context(|| format!("cannot read {line}"))
    }

    /// Sends them home; gives what they say in the end, which their exit code repeats.
    pub fn end(mut self) -> Result<Summary> {
        terminate(&self.process)?;
        let summary = loop {
            match self.next()? {
                Line::Summary(summary) => break summary,
                Line::Failed(trouble) | Line::Wrong(trouble) => println!("{trouble}"),
                Line::Second(_) => {}
            }
        };
        let status = self.process.0.wait()?;
        ensure!(status.success() == summary.is_good(), "{status}, but: {summary}");
        Ok(summary)
    }
}

fn lines(process: &mut Process) -> Result<Lines<BufReader<ChildStdout>>> {
    Ok(BufReader::new(process.0.stdout.take().context("no output")?).lines())
}

fn terminate(process: &Process) -> Result<()> {
    let status = Command::new("kill").args(["-TERM", &process.0.id().to_string()]).status()?;
    ensure!(status.success(), "cannot end process {}", process.0.id());
    Ok(())
}

/// The list of products that the manifest has.
fn products() -> Result<String> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(include_str!("../../shop.yaml"))?;
    let mut lists = documents.iter().filter_map(|document| document["data"]["products.json"].as_str());
    Ok(lists.next_back().context("the manifest has no products")?.to_owned())
}
