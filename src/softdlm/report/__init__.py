"""What people look at: terminal, tables, figures. Reads results, computes none."""
