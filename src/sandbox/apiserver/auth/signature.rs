//! JSON Web Tokens signed with HMAC-SHA256 (RFC 7515, RFC 2104), written and read again by the one server that knows the key.
//! Must not know what the claims mean.

use data_encoding::BASE64URL_NOPAD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;

const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

/// HMAC-SHA256 of a message, to be read or compared.
fn hmac(key: &[u8; 32], message: &[u8]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length").chain_update(message)
}

/// The token of these claims.
pub(super) fn sign(key: &[u8; 32], claims: &Value) -> String {
    let text = format!("{}.{}", encoded(HEADER.as_bytes()), encoded(claims.to_string().as_bytes()));
    let signature = encoded(&hmac(key, text.as_bytes()).finalize().into_bytes());
    format!("{text}.{signature}")
}

/// The claims of a token; none unless it was signed with this key.
pub(super) fn verify(key: &[u8; 32], token: &str) -> Option<Value> {
    let (text, signature) = token.rsplit_once('.')?;
    let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).ok()?;
    hmac(key, text.as_bytes()).verify_slice(&signature).ok()?;
    let (_, claims) = text.split_once('.')?;
    serde_json::from_slice(&BASE64URL_NOPAD.decode(claims.as_bytes()).ok()?).ok()
}

fn encoded(bytes: &[u8]) -> String {
    BASE64URL_NOPAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_signature_is_that_of_rfc_4231() {
        // Test case 1 there; its key of 20 bytes is padded with zeros in any case.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let expected = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
        assert_eq!(data_encoding::HEXLOWER.encode(&hmac(&key, b"Hi There").finalize().into_bytes()), expected);
    }

    #[test]
    fn only_what_was_signed_with_the_key_is_read() {
        let claims = json!({"sub": "a"});
        let token = sign(&[1; 32], &claims);
        assert_eq!(verify(&[1; 32], &token), Some(claims.clone()));
        assert_eq!(verify(&[2; 32], &token), None);
        let forged = encoded(json!({"sub": "b"}).to_string().as_bytes());
        let parts: Vec<&str> = token.split('.').collect();
        for wrong in [
            format!("{}.{forged}.{}", parts[0], parts[2]),
            format!("{}.{}.", parts[0], parts[1]),
            format!("{}.{}", parts[0], parts[1]),
            token[..token.len() - 4].to_owned(),
            String::new(),
            "..".to_owned(),
        ] {
            assert_eq!(verify(&[1; 32], &wrong), None, "{wrong}");
        }
    }
}
