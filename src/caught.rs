//! Panics of what is run on purpose to see whether it panics, as words.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body`; what it was working on must not be used any more when it panics.
///
/// # Errors
/// What the panic said.
pub fn caught<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        text.unwrap_or("no message").to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_in_its_own_words() {
        assert_eq!(caught(|| 7), Ok(7));
        assert_eq!(
            caught::<()>(|| panic!("batch {} after {}", 2, 3)),
            Err("batch 2 after 3".into())
        );
        assert_eq!(caught::<()>(|| panic!("plain")), Err("plain".into()));
        assert_eq!(caught::<()>(|| std::panic::panic_any(7)), Err("no message".into()));
    }
}
