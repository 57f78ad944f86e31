"""The page that plays traces: HTML, CSS and JavaScript modules, and how they become one file."""
