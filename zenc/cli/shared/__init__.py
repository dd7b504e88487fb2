"""Options, files and progress that several verbs share."""
