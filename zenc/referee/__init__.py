"""Plans that other synthesizers wrote: recognised by content, judged, and made into plans of zenc."""
