-- Searches are summed up from their records when somebody asks, as on the other stores.

DROP TABLE search_sums;
DROP TABLE search_tallies;
