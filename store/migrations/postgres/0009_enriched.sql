-- What a model wrote of tools is not kept any more.
DROP TABLE enriched;
