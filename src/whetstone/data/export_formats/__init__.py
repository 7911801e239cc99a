"""Problems in the columns that other trainers read."""
