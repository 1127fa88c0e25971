//! The live view: a plain value that hears all news ([`state`]), a function that draws it ([`draw`]), and keys.

mod draw;
mod state;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

use crate::script::Deed;
use crate::story::Timed;
use state::State;

/// How often the screen is drawn.
const FRAME: Duration = Duration::from_millis(200);

/// What a person wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// Something to be done.
    Do(Deed),
    /// To leave at once.
    Leave,
}

/// Shows news until there are no more, or until a person wants to leave at once.
pub async fn show(news: mpsc::UnboundedReceiver<Timed>, deeds: mpsc::UnboundedSender<Deed>) -> Result<()> {
    let mut terminal = ratatui::try_init().context("cannot use this terminal; try: make demo | cat")?;
    let shown = follow(&mut terminal, news, deeds).await;
    ratatui::try_restore()?;
    shown
}

async fn follow(
    terminal: &mut ratatui::DefaultTerminal,
    mut news: mpsc::UnboundedReceiver<Timed>,
    deeds: mpsc::UnboundedSender<Deed>,
) -> Result<()> {
    let (begin, mut state, mut keys) = (Instant::now(), State::default(), read_keys());
    let mut frames = tokio::time::interval(FRAME);
    loop {
        tokio::select! {
            told = news.recv() => match told {
                Some((at, told)) => state.hear(at, told),
                None => return Ok(()),
            },
            Some(key) = keys.recv() => match wish(key) {
                Some(Wish::Leave) => return Ok(()),
                Some(Wish::Do(Deed::Quit)) if !state.is_open || state.is_ending => return Ok(()),
                Some(Wish::Do(deed)) if state.is_open => {
                    state.is_ending |= deed == Deed::Quit;
                    // A script that is over needs no more deeds.
                    let _ = deeds.send(deed);
                }
                Some(Wish::Do(_)) | None => {}
            },
            _ = frames.tick() => {
                state.elapsed = begin.elapsed();
                terminal.draw(|frame| draw::draw(frame, &state))?;
            }
        }
    }
}

/// Reads keys on a thread of its own, which ends with whoever listens.
fn read_keys() -> mpsc::Receiver<KeyEvent> {
    let (send, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        while !send.is_closed() {
            match event::poll(FRAME).and_then(|ready| if ready { event::read().map(Some) } else { Ok(None) })
            {
                Ok(Some(Event::Key(key))) if key.kind == KeyEventKind::Press => drop(send.blocking_send(key)),
                Ok(_) => {}
                // Without a keyboard the script goes on by itself.
                Err(_) => return,
            }
        }
    });
    keys
}

/// What a key means.
fn wish(key: KeyEvent) -> Option<Wish> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(Wish::Leave);
    }
    match key.code {
        KeyCode::Char('c') => Some(Wish::Do(Deed::Cut)),
        KeyCode::Char('h') => Some(Wish::Do(Deed::Heal)),
        KeyCode::Char('s') => Some(Wish::Do(Deed::Scale)),
        KeyCode::Char('u') => Some(Wish::Do(Deed::Unpeer)),
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::Do(Deed::Quit)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_what_the_last_line_of_the_view_says() {
        let press = |letter| wish(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE));
        let letters = ['c', 'h', 's', 'u', 'q'];
        let deeds = [Deed::Cut, Deed::Heal, Deed::Scale, Deed::Unpeer, Deed::Quit];
        for (letter, deed) in letters.into_iter().zip(deeds) {
            assert_eq!(press(letter), Some(Wish::Do(deed)));
        }
        assert_eq!(press('x'), None);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(wish(control_c), Some(Wish::Leave));
    }
}
