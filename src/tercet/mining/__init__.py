"""What the vectors of many texts say about them: duplicates, clusters, paraphrases, translations, hard negatives."""
