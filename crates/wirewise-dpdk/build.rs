// SPDX-License-Identifier: Apache-2.0
//! Builds the C shim over DPDK's inline functions.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Err(message) = dpdk() {
        eprintln!("{message}");
        std::process::exit(1);
    }
}

fn dpdk() -> Result<(), String> {
    for file in ["src/shim.c", "src/kernel.c"] {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    // Only the paths are taken from pkg-config: its list of libraries names all of DPDK.
    let found = pkg_config::Config::new()
        .atleast_version("22.11")
        .cargo_metadata(false)
        .env_metadata(true)
        .probe("libdpdk")
        .map_err(|error| {
            format!("DPDK's headers are missing: scripts/dpdk.sh fetches them, or apt-get install libdpdk-dev pkg-config\n{error}")
        })?;
    let mut build = cc::Build::new();
    build
        .file("src/shim.c")
        .file("src/kernel.c")
        .std("gnu11")
        .opt_level(3)
        .warnings(true)
        .extra_warnings(true);
    for path in &found.include_paths {
        // As system headers, so that -Wextra speaks of the shim only.
        build.flag("-isystem").flag(path.display().to_string());
    }
    build.flag("-include").flag("rte_config.h");
    // DPDK's inline functions need at least what its libraries were built for.
    match std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => build.flag("-march=corei7"),
        Ok("aarch64") => build.flag("-march=armv8-a+crc"),
        _ => &mut build,
    };
    build.try_compile("dpdk_shim").map_err(|error| format!("src/*.c: {error}"))?;
    for path in &found.link_paths {
        println!("cargo:rustc-link-search=native={}", path.display());
    }
    // The drivers are no part of this: EAL loads them from DPDK's own directory when it starts.
    for library in ["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_eal"] {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
    Ok(())
}
