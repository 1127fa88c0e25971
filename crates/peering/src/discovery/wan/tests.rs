//! A DNS server of a few lines answers from a list of records.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use ferro_core::discovery::{Announcement, Zone, zone_records};
use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::{PTR, SRV, TXT};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};

use super::{Found, MOST, Problem, Question, address, search};

type Records = BTreeMap<(Name, RecordType), Vec<RData>>;

const SERVICE: &str = "_liqo_api._tcp";

/// Answers questions for as long as the test runs; what does not fit into a packet only over TCP.
async fn serve(records: Records) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let listener = TcpListener::bind(address).await.unwrap();
    let records = Arc::new(records);
    let by_tcp = Arc::clone(&records);
    tokio::spawn(async move {
        let mut packet = [0; 4096];
        loop {
            let (length, from) = socket.recv_from(&mut packet).await.unwrap();
            let message = answer(&records, &packet[..length]);
            let bytes = message.to_vec().unwrap();
            let bytes = if bytes.len() > 1200 { message.truncate().to_vec().unwrap() } else { bytes };
            socket.send_to(&bytes, from).await.unwrap();
        }
    });
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let records = Arc::clone(&by_tcp);
            tokio::spawn(async move {
                while let Ok(length) = stream.read_u16().await {
                    let mut packet = vec![0; length.into()];
                    stream.read_exact(&mut packet).await.unwrap();
                    let bytes = answer(&records, &packet).to_vec().unwrap();
                    stream.write_u16(bytes.len().try_into().unwrap()).await.unwrap();
                    stream.write_all(&bytes).await.unwrap();
                }
            });
        }
    });
    address
}

fn answer(records: &Records, packet: &[u8]) -> Message {
    let mut message = Message::from_vec(packet).unwrap().into_response();
    let query = message.queries[0].clone();
    match records.get(&(query.name().clone(), query.query_type())) {
        Some(data) => {
            let name = query.name();
            let answers = data.iter().map(|data| Record::from_rdata(name.clone(), 300, data.clone()));
            message.add_answers(answers.collect::<Vec<_>>());
        }
        None => message.metadata.response_code = ResponseCode::NXDomain,
    }
    message
}

fn announcement() -> Announcement {
    Announcement {
        id: "34750f98-bd59-8cfc-946d-a45aaabe933b".parse().unwrap(),
        name: "milan".parse().unwrap(),
        auth_url: "https://192.0.2.7:30443".parse().unwrap(),
        pin: "sha256/AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=".parse().unwrap(),
    }
}

/// What `ferro discovery records` prints, as a server would load it.
fn published(announcement: &Announcement) -> Records {
    let zone = Zone { domain: "example.org", service: SERVICE, ttl: 300, addresses: &[] };
    let mut records = Records::new();
    for line in zone_records(announcement, &zone).unwrap() {
        let words: Vec<_> = line.splitn(5, ' ').collect();
        let name = |text: &str| Name::from_ascii(text).unwrap();
        let data = match words[3] {
            "PTR" => RData::PTR(PTR(name(words[4]))),
            "SRV" => {
                let words: Vec<_> = words[4].split(' ').collect();
                RData::SRV(SRV::new(0, 0, words[2].parse().unwrap(), name(words[3])))
            }
            "TXT" => {
                let strings = words[4].split('"').skip(1).step_by(2).map(str::to_owned);
                RData::TXT(TXT::new(strings.collect()))
            }
            _ => continue,
        };
        records.entry((name(words[0]), data.record_type())).or_default().push(data);
    }
    records
}

fn register(records: &mut Records, instance: &str, strings: &[&str]) {
    let name = |text: &str| Name::from_ascii(text).unwrap();
    let service = name(&format!("{SERVICE}.example.org."));
    let instance = name(&format!("{instance}.{SERVICE}.example.org."));
    let pointer = RData::PTR(PTR(instance.clone()));
    records.entry((service, RecordType::PTR)).or_default().push(pointer);
    let srv = RData::SRV(SRV::new(0, 0, 443, name("h.example.org.")));
    records.entry((instance.clone(), RecordType::SRV)).or_default().push(srv);
    let text = RData::TXT(TXT::new(strings.iter().map(|text| (*text).to_owned()).collect()));
    records.entry((instance, RecordType::TXT)).or_default().push(text);
}

async fn ask(records: Records) -> Result<Found, Problem> {
    let server = Some(serve(records).await.to_string());
    search(&Question { domain: "example.org".into(), service: SERVICE.into(), server }).await
}

#[tokio::test]
async fn a_cluster_whose_records_were_published_is_found() {
    let found = ask(published(&announcement())).await;
    assert_eq!(found, Ok(Found { announcements: vec![announcement()], rubbish: 0 }));
}

#[tokio::test]
async fn rubbish_beside_it_is_counted_and_does_no_harm() {
    let mut records = published(&announcement());
    register(&mut records, "rubbish", &["v=1", "id=nobody"]);
    register(&mut records, "empty", &[]);
    let service = Name::from_ascii(format!("{SERVICE}.example.org.")).unwrap();
    let pointers = records.get_mut(&(service, RecordType::PTR)).unwrap();
    for elsewhere in ["a.b._liqo_api._tcp.example.org.", "victim.example.net.", "_liqo_api._tcp.example.org."]
    {
        pointers.push(RData::PTR(PTR(Name::from_ascii(elsewhere).unwrap())));
    }
    let nowhere = Name::from_ascii(format!("nowhere.{SERVICE}.example.org.")).unwrap();
    pointers.push(RData::PTR(PTR(nowhere)));
    let found = ask(records).await.unwrap();
    assert_eq!((found.announcements, found.rubbish), (vec![announcement()], 3));
}

#[tokio::test]
async fn instances_without_end_are_bounded() {
    let mut records = Records::new();
    for number in 0..MOST + 44 {
        register(&mut records, &format!("n{number}"), &["v=1"]);
    }
    let found = ask(records).await.unwrap();
    assert_eq!((found.announcements.len(), found.rubbish), (0, MOST + 44));
}

#[tokio::test]
async fn a_domain_without_records_has_nothing() {
    assert_eq!(ask(Records::new()).await, Err(Problem::Nothing));
}

#[tokio::test]
async fn a_server_without_an_address_is_not_asked() {
    let server = Some("ns.example.org".to_owned());
    let question = Question { domain: "example.org".into(), service: SERVICE.into(), server };
    assert_eq!(search(&question).await, Err(Problem::Server));
}

#[test]
fn a_server_is_an_address_with_or_without_a_port() {
    for (text, read) in [
        ("192.0.2.1", Some("192.0.2.1:53")),
        ("192.0.2.1:5353", Some("192.0.2.1:5353")),
        ("2001:db8::1", Some("[2001:db8::1]:53")),
        ("[2001:db8::1]", Some("[2001:db8::1]:53")),
        ("[2001:db8::1]:5353", Some("[2001:db8::1]:5353")),
        ("192.0.2.1:0", None),
        ("ns.example.org", None),
        ("", None),
    ] {
        assert_eq!(address(text), read.map(|read| read.parse().unwrap()), "{text}");
    }
}
