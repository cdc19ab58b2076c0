//! `consign page`: a link to the web page that may act.

use std::path::Path;
use std::time::Duration;

use super::screen::{Screen, standard};
use crate::admin::shapes::PageLink;
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};
use crate::human;
use crate::page::links::TOKEN_LIFE;

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached, or serves no page.
pub fn run(global: &Global, socket: &Path) -> Result<Exit, Failure> {
    let link: PageLink = Api::new(socket).json("POST", "/v1/page")?;
    standard(global, |screen| show(&link, screen))
}

fn show(link: &PageLink, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    if screen.is_json() {
        screen.object(link)?;
        return Ok(Exit::Done);
    }
    screen.line(&link.url);
    let good = human::duration(Duration::from_secs(link.expires_seconds));
    let acts = human::duration(TOKEN_LIFE);
    screen.note(&format!(
        "Open it within {good}; it opens once. The page may then retry dead letters for {acts}."
    ));
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::screen::said;

    #[test]
    fn the_link_is_data_and_the_rest_is_not() {
        let link = PageLink {
            schema: PageLink::SCHEMA.into(),
            url: "http://127.0.0.1:7411/#token=00".into(),
            expires_seconds: 600,
        };
        let (exit, heard) = said(false, |screen| show(&link, screen));
        assert_eq!((exit, heard.lines), (Ok(Exit::Done), vec![link.url.clone()]));
        let note =
            "Open it within 10 min; it opens once. The page may then retry dead letters for 12 h.";
        assert_eq!(heard.notes, [note]);
        let (_, heard) = said(true, |screen| show(&link, screen));
        assert!(heard.lines[0].contains("\"consign.page/1\"") && heard.notes.is_empty());
    }
}
