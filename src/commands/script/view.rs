//! The screen of an app's terminal, as a session shows it.

use super::session::News;
use crate::core::screen::Screen;
use crate::core::screen::shown::Shown;
use crate::types::size::Size;

/// See the module.
#[derive(Default)]
pub(super) struct View {
    screen: Option<Screen>,
    /// A screen that comes, the number of bytes that it has, and its size.
    coming: Option<(Vec<u8>, u64, Size)>,
}

impl View {
    /// Takes what happened. Whether the screen may have changed by it.
    pub(super) fn take(&mut self, news: &News) -> bool {
        match news {
            News::Redraw(len, size) => {
                self.coming = Some((Vec::new(), *len, size.unwrap_or(Size::DEFAULT)));
                self.draw()
            }
            News::Screen(bytes) => {
                if let Some((screen, ..)) = &mut self.coming {
                    screen.extend_from_slice(bytes);
                }
                self.draw()
            }
            News::Output(_, bytes, _) => {
                self.screen.iter_mut().for_each(|screen| screen.process(bytes));
                self.screen.is_some()
            }
            _ => false,
        }
    }

    /// Draws the screen that has come, once it is whole.
    fn draw(&mut self) -> bool {
        let is_whole = |(bytes, len, _): &mut (Vec<u8>, u64, Size)| bytes.len() as u64 >= *len;
        let Some((bytes, _, size)) = self.coming.take_if(is_whole) else { return false };
        let mut screen = Screen::new(size);
        screen.process(&bytes);
        self.screen = Some(screen);
        true
    }

    /// What it shows, once that is known.
    pub(super) fn shown(&self) -> Option<Shown> {
        self.screen.as_ref().map(Screen::shown)
    }
}
