//! What of a configuration can change while a node runs by it.

use super::Config;

impl Config {
    /// This configuration with everything of `new` that can change while a node runs. What a node is built around stays: its
    /// name, its routes, its inbox rules, where content is parked, and how long a drain may take.
    #[must_use]
    pub fn with_live(&self, new: &Config) -> Config {
        Config {
            name: self.name.clone(),
            routes: self.routes.clone(),
            inbox: self.inbox.clone(),
            inline_max: self.inline_max,
            drain_timeout: self.drain_timeout,
            window: self.window,
            plant: self.plant,
            ..new.clone()
        }
    }
}
