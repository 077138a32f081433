//! The user's token, which nothing prints.

use std::fmt::{self, Debug, Formatter};

use crate::Error;

/// A token of the hub. It has no `Display`, its `Debug` hides it, and only the hub's own host gets it.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A token without the white space around it; `None` if nothing else is there.
    ///
    /// # Errors
    /// If the token has other characters than visible ones of ASCII.
    pub fn new(text: &str) -> Result<Option<Token>, Error> {
        let text = text.trim();
        match text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok((!text.is_empty()).then(|| Token(text.to_owned()))),
            false => Err(Error::Token),
        }
    }

    /// The value of the header `Authorization`.
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl Debug for Token {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_printed() {
        let token = Token::new(" hf_secret\n").expect("it is a token").expect("it is not empty");
        assert_eq!((format!("{token:?}"), token.header().as_str()), ("Token(hidden)".to_owned(), "Bearer hf_secret"));
        assert!(Token::new(" \n").expect("it is empty").is_none());
        let error = Token::new("hf_sec\nret").expect_err("two lines are no token");
        assert!(!format!("{error} {error:?}").contains("hf_sec"));
    }
}
