//! The protobufs on the wire: paths, field numbers and types as published.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]

use std::collections::BTreeMap;

use ferro_api::proto::{ipam, resource_reader};
use prost::Message;

/// The gRPC paths of a file, each with whether the answer is a stream.
fn paths(file: &str) -> Vec<(String, bool)> {
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
    let set = protox::compile([file], [proto]).unwrap();
    let file = &set.file[0];
    assert_eq!(file.package(), "", "a package would change every path");
    let methods = file.service.iter().flat_map(|service| {
        service
            .method
            .iter()
            .map(|method| (format!("/{}/{}", service.name(), method.name()), method.server_streaming()))
    });
    methods.collect()
}

fn unary(path: &str) -> (String, bool) {
    (path.into(), false)
}

#[test]
fn ipam_is_called_by_its_published_paths() {
    let expected = [
        unary("/ipam/MapEndpointIP"),
        unary("/ipam/UnmapEndpointIP"),
        unary("/ipam/BelongsToPodCIDR"),
        unary("/ipam/GetHomePodIP"),
    ];
    assert_eq!(paths("ipam.proto"), expected);
}

#[test]
fn gateways_follow_by_a_path_of_our_own() {
    assert_eq!(paths("gateway.proto"), [("/gateway/Follow".into(), true)]);
}

#[test]
fn resource_reader_is_called_by_its_published_paths() {
    let expected = [
        unary("/resource_reader/ReadResources"),
        unary("/resource_reader/RemoveCluster"),
        ("/resource_reader/Subscribe".into(), true),
    ];
    assert_eq!(paths("resource_reader.proto"), expected);
}

#[test]
fn map_and_unmap_carry_the_cluster_in_field_1_and_the_address_in_field_2() {
    let expected = b"\x0a\x02c1\x12\x0810.0.0.5";
    let map = ipam::MapRequest { cluster_id: "c1".into(), ip: "10.0.0.5".into() };
    let unmap = ipam::UnmapRequest { cluster_id: "c1".into(), ip: "10.0.0.5".into() };
    assert_eq!(map.encode_to_vec(), expected);
    assert_eq!(unmap.encode_to_vec(), expected);
    assert_eq!(ipam::MapRequest::decode(&expected[..]).unwrap(), map);
}

#[test]
fn the_mapped_address_is_in_field_1() {
    let answer = ipam::MapResponse { ip: "192.168.1.45".into() };
    assert_eq!(answer.encode_to_vec(), b"\x0a\x0c192.168.1.45");
    assert!(ipam::UnmapResponse {}.encode_to_vec().is_empty());
}

#[test]
fn resources_are_a_map_of_strings_in_field_1() {
    let resources = BTreeMap::from([("cpu".to_owned(), "1908m".to_owned())]);
    let answer = resource_reader::ReadResponse { resources };
    assert_eq!(answer.encode_to_vec(), b"\x0a\x0c\x0a\x03cpu\x12\x051908m");
    let question = resource_reader::ReadRequest { originator: "c1".into() };
    assert_eq!(question.encode_to_vec(), b"\x0a\x02c1");
}

#[cfg(feature = "grpc")]
#[test]
fn the_generated_servers_answer_under_the_published_names() {
    use tonic::server::NamedService;
    assert_eq!(<ipam::ipam_server::IpamServer<()> as NamedService>::NAME, "ipam");
    assert_eq!(
        <resource_reader::resource_reader_server::ResourceReaderServer<()> as NamedService>::NAME,
        "resource_reader"
    );
}
