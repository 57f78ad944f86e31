"""Model families and their loader. How one family differs from another is known only inside this folder."""
