//! Compiles the `.proto` files without protoc and keeps the descriptor set for gRPC reflection.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    let files = ["grants", "statements", "admin"].map(|name| format!("proto/tidegate/v1/{name}.proto"));
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(files, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // A group is far larger than the other steps.
    tonic_prost_build::configure().boxed(".tidegate.v1.Step.kind.group").compile_fds(descriptors)?;
    Ok(())
}
