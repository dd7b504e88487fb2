"""The verbs that help before anything is compiled: ``zenc doctor``, ``zenc new`` and ``zenc help``."""
