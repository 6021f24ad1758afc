-- Decisions that change a call: the arguments that a person set instead of the model's, and those who have approved a call that needs two.
ALTER TABLE agent_calls ADD COLUMN edited_arguments TEXT;
ALTER TABLE agent_calls ADD COLUMN approved_by TEXT;
