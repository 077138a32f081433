//! Encrypted connections: rustls with Graviola, which is written in Rust and assembly, and the system's certificates.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

use crate::error::Error;

/// The cryptography of encrypted connections.
///
/// # Errors
/// [`Error::Cpu`] if the CPU lacks instructions.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub fn crypto_provider() -> Result<Arc<CryptoProvider>, Error> {
    // Graviola panics where they are missing.
    match missing_instructions().first() {
        Some(missing) => Err(Error::Cpu(missing)),
        None => Ok(Arc::new(rustls_graviola::default_provider())),
    }
}

/// Graviola knows no other CPUs.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn crypto_provider() -> Result<Arc<CryptoProvider>, Error> {
    Err(Error::Cpu("the instructions of x86-64 or 64-bit Arm"))
}

/// The settings of encrypted connections.
///
/// # Errors
/// If the CPU lacks instructions, or the system has no certificates.
pub(crate) fn config() -> Result<TlsConfig, Error> {
    let provider = crypto_provider()?;
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let reason = found.errors.first().map_or("none are installed".to_owned(), ToString::to_string);
        return Err(Error::Certificates(reason));
    }
    let certificates = found.certs.iter().map(|der| Certificate::from_der(der.as_ref()).to_owned());
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::from(certificates))
        .unversioned_rustls_crypto_provider(provider)
        .build())
}

/// Instructions that Graviola needs and this CPU lacks (`verify_cpu_features` in graviola 0.4.4).
#[cfg(target_arch = "x86_64")]
fn missing_instructions() -> Vec<&'static str> {
    let needed = [
        ("AES", is_x86_feature_detected!("aes")),
        ("PCLMULQDQ", is_x86_feature_detected!("pclmulqdq")),
        ("BMI1", is_x86_feature_detected!("bmi1")),
        ("ADX", is_x86_feature_detected!("adx")),
        ("AVX", is_x86_feature_detected!("avx")),
        ("AVX2", is_x86_feature_detected!("avx2")),
    ];
    needed.into_iter().filter(|(_, found)| !found).map(|(name, _)| name).collect()
}

/// The same on 64-bit Arm.
#[cfg(target_arch = "aarch64")]
fn missing_instructions() -> Vec<&'static str> {
    use std::arch::is_aarch64_feature_detected;
    let needed = [
        ("NEON", is_aarch64_feature_detected!("neon")),
        ("AES", is_aarch64_feature_detected!("aes")),
        ("PMULL", is_aarch64_feature_detected!("pmull")),
        ("SHA2", is_aarch64_feature_detected!("sha2")),
    ];
    needed.into_iter().filter(|(_, found)| !found).map(|(name, _)| name).collect()
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;

    /// Graviola's own check of the CPU panics; where ours passes, it must pass too.
    #[test]
    fn graviola_runs_where_nothing_is_missing() {
        if missing_instructions().is_empty() {
            let provider = rustls_graviola::default_provider();
            let mut bytes = [0; 32];
            provider.secure_random.fill(&mut bytes).expect("random bytes");
            let digest = provider.cipher_suites[0].tls13().expect("a suite of TLS 1.3").common.hash_provider.hash(b"");
            assert!(!digest.as_ref().is_empty());
        }
    }
}
