"""Each page as a document: advice, explanation, job, plan, report, incident."""
