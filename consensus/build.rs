//! Compiles the part of etcd's API that is used, without protoc.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/etcdserverpb/rpc.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_server(false)
        // They hold secrets.
        .skip_debug([".etcdserverpb.AuthenticateRequest", ".etcdserverpb.AuthenticateResponse"])
        .include_file("etcd_api.rs")
        .compile_fds(descriptors)?;
    Ok(())
}
