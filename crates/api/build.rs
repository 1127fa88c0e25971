//! Compiles the protobufs, in Rust all the way: no protoc has to be installed.
//!
//! Messages are always generated; clients and servers only with the feature `grpc`, because they need tonic.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let services = std::env::var_os("CARGO_FEATURE_GRPC").is_some();
    for name in ["gateway", "ipam", "resource_reader"] {
        let file = format!("proto/{name}.proto");
        println!("cargo:rerun-if-changed={file}");

        // The files have no package, which would otherwise name the generated module.
        let mut config = tonic_prost_build::Config::new();
        config.default_package_filename(name);
        tonic_prost_build::configure()
            .build_client(services)
            .build_server(services)
            .build_transport(false)
            .btree_map(".")
            .compile_fds_with_config(protox::compile([&file], ["proto"])?, config)?;
    }
    Ok(())
}
